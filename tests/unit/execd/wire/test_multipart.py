"""The multipart parser, each promise as one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execd.wire.multipart import (
    MAX_PART_HEAD,
    Data,
    MultipartError,
    MultipartParser,
    Part,
    boundary_of,
    parameters,
)

BOUNDARY = b"b-1"


def collect(pieces: list[bytes]) -> list[tuple[str, str | None, bytes]]:
    """Feed the pieces; return each part's name, filename and content."""
    parser = MultipartParser(BOUNDARY)
    parts: list[tuple[str, str | None, bytes]] = []
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, Part):
                parts.append((event.name, event.filename, b""))
            elif isinstance(event, Data):
                name, filename, content = parts[-1]
                parts[-1] = (name, filename, content + bytes(event.view))
    parser.finish()
    return parts


def build(contents: list[bytes], preamble: bytes = b"", epilogue: bytes = b"") -> bytes:
    """Write a body of parts named by number."""
    out = preamble
    for number, content in enumerate(contents):
        out += b'--%b\r\nContent-Disposition: form-data; name="%d"; filename="f"\r\n\r\n%b\r\n' % (
            BOUNDARY,
            number,
            content,
        )
    return out + b"--" + BOUNDARY + b"--\r\n" + epilogue


NASTY = st.lists(
    st.sampled_from([b"\r", b"\n", b"-", b"--", b"b-", b"b-1", b"\r\n--b-", b"x"]), max_size=12
).map(b"".join)


@given(st.lists(NASTY | st.binary(max_size=60), min_size=1, max_size=4), st.data())
def test_any_chunking_gives_the_same_parts(contents: list[bytes], data: st.DataObject) -> None:
    """However a body is cut on the way, the same parts come out."""
    contents = [content.replace(b"--b-1", b"") for content in contents]
    body = build(contents, epilogue=b"junk")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=30)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    expected = [(str(number), "f", content) for number, content in enumerate(contents)]
    assert collect(pieces) == expected
    assert collect([body[at : at + 1] for at in range(len(body))]) == expected
    assert collect([body]) == expected


def test_a_preamble_is_skipped() -> None:
    """What stands before the first boundary is no part (RFC 2046 §5.1.1)."""
    assert collect([build([b"x"], preamble=b"hello\r\n")]) == [("0", "f", b"x")]


def test_a_part_needs_no_filename() -> None:
    """A part without a filename is taken as well."""
    body = b'--b-1\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{}\r\n--b-1--'
    assert collect([body]) == [("metadata", None, b"{}")]


def test_a_part_may_have_no_headers() -> None:
    """A part without any header has no name."""
    assert collect([b"--b-1\r\n\r\nx\r\n--b-1--\r\n"]) == [("", None, b"x")]


@pytest.mark.parametrize("body", [b"", b"--b-1", b"--b-1\r\nA: b\r\n\r\ndata", build([b"x"])[:-5]], ids=repr)
def test_a_body_that_breaks_off_is_not_whole(body: bytes) -> None:
    """R55: A body that ends before its closing boundary is an error, not a shorter file."""
    with pytest.raises(MultipartError):
        collect([body])


@pytest.mark.parametrize(
    "body",
    [b"--b-1\r\nnot a header\r\n\r\n", b"--b-1x\r\n\r\n", b"--b-1\r\nA: " + b"x" * MAX_PART_HEAD * 2],
    ids=["line", "behind", "long"],
)
def test_a_malformed_head_is_refused(body: bytes) -> None:
    """The head of a part is bounded and made of headers."""
    with pytest.raises(MultipartError):
        collect([body])


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_the_parser_raises_nothing_else(first: bytes, second: bytes) -> None:
    """Arbitrary bytes give parts, or the parser's error."""
    try:
        collect([b"--b-1\r\n" + first, second])
    except MultipartError:
        pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('form-data; name="a"; filename="b c"', {"name": "a", "filename": "b c"}),
        ("form-data; name=a;filename=b", {"name": "a", "filename": "b"}),
        (r'form-data; name="a\"b\\c"', {"name": 'a"b\\c'}),
        (r'x; filename="C:\new"', {"filename": "C:\\new"}),
        ("x; filename*=UTF-8''%e2%82%ac%20a", {"filename*": "€ a"}),
        ('x; a="unclosed', {"a": "unclosed"}),
        ('x; a=";"; b=1', {"a": ";", "b": "1"}),
        ("x", {}),
        ("x;;", {}),
    ],
)
def test_parameters_are_read(value: str, expected: dict[str, str]) -> None:
    """Parameters are tokens or quoted strings, whatever stands inside the quotes."""
    assert parameters(value) == expected


def test_the_boundary_is_read() -> None:
    """The boundary may be quoted."""
    assert boundary_of('Multipart/Form-Data; boundary="a b"; x=y') == b"a b"


@pytest.mark.parametrize(
    "value", [None, "text/plain; boundary=a", "multipart/form-data", "multipart/form-data; boundary=é"]
)
def test_a_missing_boundary_is_refused(value: str | None) -> None:
    """Without a usable boundary nothing is guessed."""
    with pytest.raises(MultipartError):
        boundary_of(value)
