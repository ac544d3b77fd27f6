"""Read the machine's apt source lists and derive lists of our own (pure).

The build takes packages from where the machine already takes them, with the
keys it already trusts. Both of apt's formats are read (sources.list(5)): the
one-line style and the deb822 style; what is written is always deb822.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

# The pockets of a release that carry the release's own packages.
POCKETS = ("", "-security", "-updates")


@dataclass(frozen=True, slots=True)
class Entry:
    """One place packages come from."""

    types: tuple[str, ...]
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """deb822 field name and value, as written (a value may span lines)."""


# One-line options and the deb822 fields they stand for (sources.list(5)).
_OPTION_FIELDS = {
    "arch": "Architectures",
    "signed-by": "Signed-By",
    "trusted": "Trusted",
    "check-valid-until": "Check-Valid-Until",
    "check-date": "Check-Date",
    "snapshot": "Snapshot",
}
_CORE_FIELDS = frozenset({"types", "uris", "suites", "components", "enabled"})
_DISABLED = frozenset({"no", "false", "0", "off", "without", "disable"})


def parse_list(text: str) -> tuple[Entry, ...]:
    """Read one-line style (`*.list`); a line that is not understood is passed over, as apt's comments are."""
    entries = []
    for raw in text.splitlines():
        words = raw.partition("#")[0].split()
        if len(words) < 3 or words[0] not in {"deb", "deb-src"}:
            continue
        kind, rest = words[0], words[1:]
        options: list[tuple[str, str]] = []
        if rest[0].startswith("["):
            end = next((i for i, word in enumerate(rest) if word.endswith("]")), None)
            if end is None:
                continue
            for pair in " ".join(rest[: end + 1]).strip("[]").split():
                name, _, value = pair.partition("=")
                field = _OPTION_FIELDS.get(name.rstrip("+-").lower())
                if field is not None:
                    options.append((field, value.replace(",", " ")))
            rest = rest[end + 1 :]
        if len(rest) < 2:
            continue
        entries.append(Entry((kind,), (rest[0],), (rest[1],), tuple(rest[2:]), tuple(options)))
    return tuple(entries)


def parse_deb822(text: str) -> tuple[Entry, ...]:
    """Read deb822 style (`*.sources`); disabled and incomplete stanzas are left out."""
    entries = []
    for fields in _stanzas(text):
        if fields.get("enabled", "yes").strip().lower() in _DISABLED:
            continue
        types, uris, suites = (tuple(fields.get(name, "").split()) for name in ("types", "uris", "suites"))
        if not (types and uris and suites):
            continue
        options = tuple((name.title(), value) for name, value in fields.items() if name not in _CORE_FIELDS)
        entries.append(Entry(types, uris, suites, tuple(fields.get("components", "").split()), options))
    return tuple(entries)


def own_entries(entries: Iterable[Entry], codename: str) -> tuple[Entry, ...]:
    """
    Keep the distribution's own binary entries.

    Vendors that add their own repositories name other suites or have no `main`.
    """
    wanted = {codename + pocket for pocket in POCKETS}
    kept = []
    for entry in entries:
        suites = tuple(suite for suite in entry.suites if suite in wanted)
        if "deb" in entry.types and suites and "main" in entry.components:
            kept.append(replace(entry, types=("deb",), suites=suites))
    return tuple(kept)


def source_entries(own: Sequence[Entry], codename: str, releases: Sequence[str]) -> tuple[Entry, ...]:
    """Ask the same mirrors, with the same keys, for the sources of each release."""
    out: list[Entry] = []
    for entry in own:
        suites = tuple(
            release + suite.removeprefix(codename) for release in releases for suite in entry.suites
        )
        options = tuple((name, value) for name, value in entry.options if name != "Architectures")
        out.extend(
            # One suite per stanza: a mirror that lacks one still serves the others.
            Entry(("deb-src",), entry.uris, (suite,), ("main",), options)
            for suite in dict.fromkeys(suites)
        )
    return tuple(out)


def render(entries: Iterable[Entry]) -> str:
    """Write entries in deb822 style."""
    stanzas = []
    for entry in entries:
        lines = [
            f"Types: {' '.join(entry.types)}",
            f"URIs: {' '.join(entry.uris)}",
            f"Suites: {' '.join(entry.suites)}",
        ]
        if entry.components:
            lines.append(f"Components: {' '.join(entry.components)}")
        lines.extend(f"{name}: {value}" for name, value in entry.options)
        stanzas.append("\n".join(lines) + "\n")
    return "\n".join(stanzas)


def parse_os_release(text: str) -> dict[str, str]:
    """Read os-release(5) assignments."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def _stanzas(text: str) -> list[dict[str, str]]:
    stanzas: list[dict[str, str]] = [{}]
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
            name = ""
        elif line[0] in " \t":
            if name:
                stanzas[-1][name] += "\n" + line
        else:
            field, _, value = line.partition(":")
            name = field.strip().lower()
            stanzas[-1][name] = value.strip()
    return [stanza for stanza in stanzas if stanza]
