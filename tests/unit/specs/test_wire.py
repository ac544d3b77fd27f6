"""JSON and fields, each promise as one sentence."""

import datetime as dt
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_what_is_encoded_can_be_decoded(value: object) -> None:
    """Encoding is ASCII, compact JSON that any decoder reads back."""
    data = wire.encode(value)
    assert data.isascii()
    assert b"\n" not in data
    assert json.loads(data) == value
    assert wire.decode(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  ",
        b'{"a":',
        b'{"a" 1}',
        b"[1,,2]",
        b'"abc',
        b'"\\x"',
        b"nul",
        b"-",
        b"NaN",
        b"Infinity",
        b"\xff",
        b"[" * 100_000,
        b"9" * 5000,
    ],
    ids=lambda data: data[:12].decode("latin-1"),
)
def test_malformed_text_is_a_value_error(data: bytes) -> None:
    """Whatever is wrong with the text, the failure is a ValueError."""
    with pytest.raises(ValueError):
        wire.decode(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Decoding arbitrary bytes returns or raises ValueError."""
    try:
        wire.decode(data)
    except ValueError:
        pass


def test_what_follows_the_first_value_is_ignored() -> None:
    """Trailing bytes and a byte order mark do not matter (execd §1.1)."""
    assert wire.decode('\ufeff {"a": 1} x'.encode()) == {"a": 1}


@pytest.mark.parametrize("value", [math.nan, math.inf, object()], ids=repr)
def test_what_has_no_json_form_is_refused(value: object) -> None:
    """Values without a JSON form are not written as something else."""
    with pytest.raises((ValueError, TypeError)):
        wire.encode([value])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1, "a string is expected, got a number"),
        (True, "got a boolean"),
        ([], "got an array"),
        ({}, "got an object"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_wrong_text_is_named(value: object, reason: str) -> None:
    """A field that is not text is refused with its name and what it is."""
    with pytest.raises(wire.BadField) as caught:
        wire.text({"cwd": value}, "cwd")
    assert caught.value.field == "cwd"
    assert reason in caught.value.reason


def test_undecodable_names_pass() -> None:
    """A lone surrogate that stands for a byte of a file name is text."""
    assert wire.text({"path": "/tmp/\udcff"}, "path") == "/tmp/\udcff"


def test_null_counts_as_absent() -> None:
    """Every reader takes null for an absent field."""
    obj = {"a": None}
    assert wire.text(obj, "a") is None
    assert wire.integer(obj, "a") is None
    assert wire.boolean(obj, "a") is False
    assert wire.string_list(obj, "a") is None
    assert wire.string_map(obj, "a") == {}


@pytest.mark.parametrize("value", [True, 1.0, "1", -1, 11])
def test_a_wrong_integer_is_refused(value: object) -> None:
    """An integer field takes integers within its bounds and nothing like them."""
    with pytest.raises(wire.BadField):
        wire.integer({"a": value}, "a", minimum=0, maximum=10)


@pytest.mark.parametrize("envs", [{"": "x"}, {"A=B": "x"}, {"A": 1}, {"A": None}, {"A": "\0"}, []])
def test_a_wrong_environment_is_refused(envs: object) -> None:
    """Variables have names without `=` and text values."""
    with pytest.raises(wire.BadField):
        wire.environment({"envs": envs}, "envs")


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_times_agree_with_the_calendar(moment: dt.datetime) -> None:
    """rfc3339 writes the same day and time as the standard library."""
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    micros = (moment - epoch) // dt.timedelta(microseconds=1)
    assert wire.rfc3339(micros * 1000) == moment.strftime(f"{moment.year:04d}-%m-%dT%H:%M:%S.%f000Z")
