"""Reading apt's source lists and deriving lists from them."""

import pytest

from images.bundle.apt_sources import (
    Entry,
    own_entries,
    parse_deb822,
    parse_list,
    parse_os_release,
    render,
    source_entries,
)

KEYRING = ("Signed-By", "/usr/share/keyrings/k.gpg")


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("deb http://m/d rel main", Entry(("deb",), ("http://m/d",), ("rel",), ("main",))),
        ("deb-src http://m/d rel main x", Entry(("deb-src",), ("http://m/d",), ("rel",), ("main", "x"))),
        (
            "deb [signed-by=/usr/share/keyrings/k.gpg] http://m/d rel main # why",
            Entry(("deb",), ("http://m/d",), ("rel",), ("main",), (KEYRING,)),
        ),
        (
            "deb [ arch=amd64,arm64 unknown=1 ] http://m/d rel main",
            Entry(("deb",), ("http://m/d",), ("rel",), ("main",), (("Architectures", "amd64 arm64"),)),
        ),
        ("deb http://m/d ./", Entry(("deb",), ("http://m/d",), ("./",))),
    ],
)
def test_a_one_line_entry_is_read(line: str, entry: Entry) -> None:
    """
    Options in brackets become the fields that the other style gives them.
    """
    assert parse_list(line) == (entry,)


@pytest.mark.parametrize(
    "line", ["", "# deb http://m/d rel main", "deb", "rpm http://m rel main", "deb [arch=a http://m"]
)
def test_other_lines_are_passed_over(line: str) -> None:
    """
    Comments and what apt would not take are no entries.
    """
    assert parse_list(line) == ()


def test_a_stanza_is_read_with_its_inline_key() -> None:
    """
    A value may span lines, comments may stand between, and stanzas are parted by blank lines.
    """
    text = (
        "Types: deb deb-src\n# a comment\nURIs: http://m/d\nSuites: rel rel-updates\nComponents: main\n"
        "Signed-By:\n -----BEGIN\n .\n -----END\n\n\nTypes: deb\nURIs: http://n\nSuites: ./\n"
    )

    assert parse_deb822(text) == (
        Entry(
            ("deb", "deb-src"),
            ("http://m/d",),
            ("rel", "rel-updates"),
            ("main",),
            (("Signed-By", "\n -----BEGIN\n .\n -----END"),),
        ),
        Entry(("deb",), ("http://n",), ("./",)),
    )


@pytest.mark.parametrize("value", ["no", "No", "false", "0"])
def test_a_disabled_stanza_is_no_entry(value: str) -> None:
    """
    What the machine has switched off stays off.
    """
    assert (
        parse_deb822(f"Enabled: {value}\nTypes: deb\nURIs: http://m\nSuites: rel\nComponents: main\n") == ()
    )


def test_what_is_rendered_is_read_back() -> None:
    """
    Rendered entries, an inline key among them, are the entries that are parsed.
    """
    entries = (
        Entry(("deb",), ("http://m/d",), ("rel", "rel-updates"), ("main",), (KEYRING,)),
        Entry(
            ("deb-src",), ("http://n",), ("rel",), ("main",), (("Signed-By", "\n -----BEGIN\n .\n -----END"),)
        ),
    )

    assert parse_deb822(render(entries)) == entries


def test_only_the_distribution_itself_is_kept() -> None:
    """
    Vendors' repositories, other releases and source entries are not the release's own packages.
    """
    entries = (
        Entry(("deb",), ("http://m/d",), ("rel", "rel-updates", "rel-backports"), ("main",), (KEYRING,)),
        Entry(("deb",), ("http://m/s",), ("rel-security",), ("main", "contrib")),
        Entry(("deb",), ("http://vendor",), ("rel",), ("stable",)),
        Entry(("deb",), ("http://vendor",), ("tool-rel",), ("main",)),
        Entry(("deb-src",), ("http://m/d",), ("rel",), ("main",)),
    )

    assert own_entries(entries, "rel") == (
        Entry(("deb",), ("http://m/d",), ("rel", "rel-updates"), ("main",), (KEYRING,)),
        Entry(("deb",), ("http://m/s",), ("rel-security",), ("main", "contrib")),
    )


def test_sources_are_asked_of_the_same_mirrors_with_the_same_keys() -> None:
    """
    Each release's pocket is a stanza of its own, so that one a mirror lacks spoils no other.
    """
    own = (
        Entry(
            ("deb",),
            ("http://m/d",),
            ("old", "old-updates"),
            ("main", "x"),
            (KEYRING, ("Architectures", "amd64")),
        ),
        Entry(("deb",), ("http://m/s",), ("old-security",), ("main",)),
    )

    assert source_entries(own, "old", ("new", "old")) == (
        Entry(("deb-src",), ("http://m/d",), ("new",), ("main",), (KEYRING,)),
        Entry(("deb-src",), ("http://m/d",), ("new-updates",), ("main",), (KEYRING,)),
        Entry(("deb-src",), ("http://m/d",), ("old",), ("main",), (KEYRING,)),
        Entry(("deb-src",), ("http://m/d",), ("old-updates",), ("main",), (KEYRING,)),
        Entry(("deb-src",), ("http://m/s",), ("new-security",), ("main",)),
        Entry(("deb-src",), ("http://m/s",), ("old-security",), ("main",)),
    )


def test_os_release_is_read() -> None:
    """
    Quotes are taken off, comments are passed over.
    """
    text = "ID=debian\n# no=1\nVERSION_CODENAME=\"rel\"\n\nHOME_URL='a=b'\n"

    assert parse_os_release(text) == {"ID": "debian", "VERSION_CODENAME": "rel", "HOME_URL": "a=b"}
