"""What can go wrong while a bundle is made or read."""

from __future__ import annotations

from pathlib import Path

from specs.errors import BoxwrightError


class BundleError(BoxwrightError):
    """Base of every failure to have a bundle."""

    @property
    def brief(self) -> str:
        """The first line: what went wrong, without the output that shows why."""
        return self.message.partition("\n")[0]


class BundleDamaged(BundleError):
    """The directory is not the bundle its manifest describes."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path} is no sound bundle: {problem}. `boxwright bundle build` says where it puts a sound one"
        )
        self.path = path


class SourceMissing(BundleError):
    """A source file the bundle is made of is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is missing; the bundle cannot be built without it")
        self.path = path


class ImportsUnmet(BundleError):
    """House modules import what the bundled interpreter does not have."""

    def __init__(self, unmet: list[str]) -> None:
        super().__init__(
            "the bundle's interpreter cannot satisfy: "
            + "; ".join(unmet)
            + ". Guard the import with `except ImportError` or do without it"
        )
        self.unmet = unmet


class ToolMissing(BundleError):
    """The machine lacks a program the build calls."""

    def __init__(self, tool: str, package: str) -> None:
        super().__init__(f"{tool} is not on this machine; install the package {package}")
        self.tool = tool


class PackageMissing(BundleError):
    """The machine's package sources do not offer what is needed."""


class StepFailed(BundleError):
    """A program the build called failed; its output is in a log."""

    def __init__(self, step: str, outcome: str, log: Path, tail: str) -> None:
        super().__init__(f"{step}: {outcome}; the whole output is in {log}\n{tail}")
        self.log = log


class LockTimeout(BundleError):
    """Another build of the same thing did not end in time."""

    def __init__(self, lock: Path, seconds: float) -> None:
        super().__init__(f"{lock} was held by another build for more than {seconds:.0f} s")
