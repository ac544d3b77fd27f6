"""What machine this is, by its own files."""

from pathlib import Path

import pytest

from images.bundle.apt import this_distribution
from images.bundle.apt_sources import Entry
from images.bundle.errors import PackageMissing


def machine(root: Path, os_release: str, files: dict[str, str]) -> tuple[Path, Path]:
    (root / "os-release").write_text(os_release)
    (root / "apt/sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        (root / "apt" / name).write_text(text)
    return root / "os-release", root / "apt"


def test_both_styles_of_source_files_are_read(tmp_path: Path) -> None:
    """
    The release's own entries are found in the list, in list parts and in stanzas.
    """
    found = this_distribution(
        *machine(
            tmp_path,
            "ID=debian\nVERSION_CODENAME=rel\n",
            {
                "sources.list": "deb http://one rel main\n",
                "sources.list.d/two.list": "deb http://two rel-security main\n",
                "sources.list.d/three.sources": "Types: deb\nURIs: http://three\nSuites: rel\nComponents: main\n",
                "sources.list.d/off.list.disabled": "deb http://off rel main\n",
            },
        )
    )

    assert (found.name, found.codename) == ("debian", "rel")
    assert found.entries == (
        Entry(("deb",), ("http://one",), ("rel",), ("main",)),
        Entry(("deb",), ("http://two",), ("rel-security",), ("main",)),
        Entry(("deb",), ("http://three",), ("rel",), ("main",)),
    )


@pytest.mark.parametrize(
    ("os_release", "files", "problem"),
    [
        ("ID=alpine\n", {}, "no apt package sources"),
        ("ID=debian\nVERSION_CODENAME=rel\n", {}, "names no source of the rel release"),
        ("VERSION_CODENAME=rel\n", {"sources.list": "deb http://v tool main\n"}, "names no source"),
    ],
)
def test_a_machine_without_its_release_on_a_mirror_is_refused(
    tmp_path: Path, os_release: str, files: dict[str, str], problem: str
) -> None:
    """
    Packages of another release or vendor are never taken instead.
    """
    with pytest.raises(PackageMissing, match=problem):
        this_distribution(*machine(tmp_path, os_release, files))


def test_a_machine_without_apt_is_refused(tmp_path: Path) -> None:
    """
    No apt configuration means no packages, said so.
    """
    with pytest.raises(PackageMissing):
        this_distribution(tmp_path / "os-release", tmp_path / "apt")
