"""Choosing the distribution's interpreter."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from images.bundle.debian import Record, cached, newest_python, recipe
from images.bundle.errors import PackageMissing


@pytest.mark.parametrize(
    ("packages", "python"),
    [
        (["python3.11-minimal"], "3.11"),
        (["python3.9-minimal", "python3.13-minimal", "python3.12-minimal"], "3.13"),
        (["libpython3.14-minimal", "python3.11-minimal", "python3.12-minimal-dbg"], "3.11"),
    ],
)
def test_the_newest_release_is_taken(packages: list[str], python: str) -> None:
    """
    Releases are compared as numbers, and only the interpreter's own package counts.
    """
    assert newest_python(packages) == python


@pytest.mark.parametrize("packages", [[], ["python3.9-minimal", "python3.10-minimal"]])
def test_an_old_python_is_refused(packages: list[str]) -> None:
    """
    execd needs 3.11.
    """
    with pytest.raises(PackageMissing):
        newest_python(packages)


def test_a_cached_runtime_must_be_of_today_s_recipe(tmp_path: Path) -> None:
    """
    What another version of the build unpacked is not used.
    """
    for key, made_by in (("old", "another"), ("new", recipe())):
        home = tmp_path / "runtimes" / key
        home.mkdir(parents=True)
        (home / "runtime.json").write_text(json.dumps(asdict(Record(made_by, "3.11", ["p 1 c"], "ld.so"))))

    found = cached(tmp_path)

    assert found is not None
    assert (found.key, found.program) == ("new", tmp_path / "runtimes/new/usr/bin/python3.11")
    assert cached(tmp_path / "nowhere") is None
