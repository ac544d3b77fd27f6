"""JSON for a program that cannot afford `json`: the C scanner and encoder, and readers of fields.

`decode` takes the first value and ignores what follows it, as the protocol does
(execd §1.1). The field readers turn a decoded object into typed values or say
which field is wrong and why. `null` counts as absent everywhere.

Source: RFC 8259; execd contract §1.1.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, NoReturn, overload


class BadField(ValueError):
    """A field has the wrong type or a value out of range."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Grammar:
    """What the C scanner asks of its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner reads it as an attribute


_scan: Any = make_scanner(_Grammar())  # type: ignore[arg-type]  # typeshed names the scanner itself here


def _refuse_value(value: object) -> NoReturn:
    raise TypeError(f"{type(value).__name__} has no JSON form")


_iterencode: Any = make_encoder(
    None, _refuse_value, encode_basestring_ascii, None, ":", ",", False, False, False
)


def decode(data: bytes) -> Any:
    """
    Decode the first JSON value in `data`.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nested too deep; the message says where.
    """
    text = str(data, "utf-8").lstrip(" \t\r\n\ufeff")
    try:
        return _scan(text, 0)[0]
    except StopIteration as stop:
        raise ValueError(f"a value is expected at character {stop.value}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    except SystemError:
        # Before 3.13 the scanner has no exception to raise until `json.decoder` is loaded.
        import json.decoder  # noqa: F401

        try:
            return _scan(text, 0)[0]
        except StopIteration as stop:
            raise ValueError(f"a value is expected at character {stop.value}") from None


def encode(value: object) -> bytes:
    """
    Encode as compact, pure ASCII JSON.

    Raises:
        TypeError: a value has no JSON form.
        ValueError: a number is not finite.
    """
    return "".join(_iterencode(value, 0)).encode("ascii")


# -- reading fields ---------------------------------------------------------------


def record(value: object, name: str = "body") -> dict[str, Any]:
    """Return `value` if it is an object."""
    if not isinstance(value, dict):
        raise BadField(name, f"an object is expected, got {kind(value)}")
    return value


def array(value: object, name: str = "body") -> list[Any]:
    """Return `value` if it is an array."""
    if not isinstance(value, list):
        raise BadField(name, f"an array is expected, got {kind(value)}")
    return value


def kind(value: object) -> str:
    """Name a value's JSON type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def check_text(value: object, name: str, *, nul: bool = False) -> str:
    """
    Return `value` if it is a string that the operating system can be given.

    Lone surrogates pass only where they stand for undecodable bytes
    (surrogateescape), so a file name that was listed can be sent back.
    """
    if not isinstance(value, str):
        raise BadField(name, f"a string is expected, got {kind(value)}")
    if not nul and "\0" in value:
        raise BadField(name, "a NUL character is not allowed")
    if not value.isascii():
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise BadField(name, "half of a surrogate pair is not text") from None
    return value


if TYPE_CHECKING:

    @overload
    def text(
        obj: dict[str, Any], name: str, *, required: Literal[True], empty: bool = ..., nul: bool = ...
    ) -> str: ...
    @overload
    def text(
        obj: dict[str, Any], name: str, *, required: Literal[False] = ..., empty: bool = ..., nul: bool = ...
    ) -> str | None: ...


def text(
    obj: dict[str, Any], name: str, *, required: bool = False, empty: bool = True, nul: bool = False
) -> str | None:
    """
    Read a string field; None when absent.

    Args:
        obj: the decoded object.
        name: the field.
        required: absence is an error.
        empty: an empty string is allowed.
        nul: NUL characters are allowed.

    Raises:
        BadField: the field is missing, not a string, or not acceptable.
    """
    value = obj.get(name)
    if value is None:
        if required:
            raise BadField(name, "is required")
        return None
    value = check_text(value, name, nul=nul)
    if not value and not empty:
        raise BadField(name, "must not be empty")
    return value


if TYPE_CHECKING:

    @overload
    def integer(
        obj: dict[str, Any],
        name: str,
        *,
        required: Literal[True],
        minimum: int | None = ...,
        maximum: int | None = ...,
    ) -> int: ...
    @overload
    def integer(
        obj: dict[str, Any],
        name: str,
        *,
        required: Literal[False] = ...,
        minimum: int | None = ...,
        maximum: int | None = ...,
    ) -> int | None: ...


def integer(
    obj: dict[str, Any],
    name: str,
    *,
    required: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
) -> int | None:
    """
    Read an integer field; None when absent.

    Raises:
        BadField: it is missing though required, not an integer, or out of range.
    """
    value = obj.get(name)
    if value is None:
        if required:
            raise BadField(name, "is required")
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadField(name, f"an integer is expected, got {kind(value)}")
    if minimum is not None and value < minimum:
        raise BadField(name, f"must be at least {minimum}")
    if maximum is not None and value > maximum:
        raise BadField(name, f"must be at most {maximum}")
    return value


def boolean(obj: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """
    Read a boolean field.

    Raises:
        BadField: it is not a boolean.
    """
    value = obj.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise BadField(name, f"a boolean is expected, got {kind(value)}")
    return value


def string_list(obj: dict[str, Any], name: str) -> list[str] | None:
    """
    Read an array of strings; None when absent.

    Raises:
        BadField: it is not an array, or an element is not a string.
    """
    value = obj.get(name)
    if value is None:
        return None
    return [check_text(item, f"{name}[{at}]") for at, item in enumerate(array(value, name))]


def string_map(obj: dict[str, Any], name: str) -> dict[str, str]:
    """
    Read an object of strings; empty when absent.

    Raises:
        BadField: it is not an object, or a value is not a string.
    """
    value = obj.get(name)
    if value is None:
        return {}
    return {
        check_text(key, name): check_text(item, f"{name}.{key}") for key, item in record(value, name).items()
    }


def environment(obj: dict[str, Any], name: str) -> dict[str, str]:
    """
    Read an object of environment variables; empty when absent.

    Raises:
        BadField: a name is empty or holds `=`, or a value is not a string.
    """
    out = string_map(obj, name)
    for key in out:
        if not key or "=" in key:
            raise BadField(name, f"{key!r} cannot name a variable")
    return out


# -- time -------------------------------------------------------------------------


def rfc3339(nanoseconds: int) -> str:
    """
    Write a Unix time as RFC 3339 in UTC, with nine digits of fraction.

    Source: RFC 3339; days to civil date by the 400-year cycle of the Gregorian calendar.
    """
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    days, rest = divmod(seconds, 86400)
    days += 719_468  # count from 1 March of year 0, so that a leap day ends its year
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return (
        f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
        f".{fraction:09d}Z"
    )
