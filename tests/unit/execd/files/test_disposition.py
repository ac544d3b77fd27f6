"""File names in a header."""

import pytest

from execd.files.disposition import attachment


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.txt", 'attachment; filename="a.txt"'),
        ('a"; filename="b', 'attachment; filename="a\\"; filename=\\"b"'),
        ("a\\b", 'attachment; filename="a\\\\b"'),
        ("a\r\nX: y", "attachment; filename=\"a%0D%0AX%3A%20y\"; filename*=UTF-8''a%0D%0AX%3A%20y"),
        ("é.txt", "attachment; filename=\"%C3%A9.txt\"; filename*=UTF-8''%C3%A9.txt"),
        ("\udcff", "attachment; filename=\"%FF\"; filename*=UTF-8''%FF"),
    ],
)
def test_a_name_cannot_write_headers(name: str, expected: str) -> None:
    """Quotes are escaped, everything that is not printable ASCII is percent-encoded."""
    value = attachment(name)
    assert value == expected
    assert value.isascii()
    assert value.isprintable()
