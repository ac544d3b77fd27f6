"""Targets, each promise as one sentence."""

from urllib.parse import parse_qs, unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from execd.wire.target import parse_query, percent_bytes, percent_text, split_target

SPICY = st.lists(
    st.sampled_from([b"%", b"41", b"%41", b"%e2%82%ac", b"%zz", b"%2", b"&", b"=", b"+", b"a"])
).map(b"".join)


@given(SPICY | st.binary(max_size=40))
def test_decoding_agrees_with_the_standard_library(data: bytes) -> None:
    """Percent-decoding happens exactly once and leaves what is malformed."""
    assert percent_bytes(data) == unquote_to_bytes(data)


@given(SPICY)
def test_queries_agree_with_the_standard_library(data: bytes) -> None:
    """A query is read as a form is."""
    expected = parse_qs(data.decode(), keep_blank_values=True, errors="surrogateescape")
    assert parse_query(data) == expected


def test_repeated_keys_keep_their_order() -> None:
    """A key given twice has two values."""
    assert parse_query(b"path=a&x&path=b+c%2B") == {"path": ["a", "b c+"], "x": [""]}


def test_a_target_is_split_once() -> None:
    """The query begins at the first question mark, a fragment is nobody's business."""
    assert split_target(b"/a?b?c#d") == (b"/a", b"b?c")
    assert percent_text(b"/%ff") == "/\udcff"
