"""The argument block says everything, in an order that works."""

import pytest

from execd.spawn.block import Limit, Setup, build, read_report


def test_everything_is_said_in_order() -> None:
    """The report comes first, privileges go before the user does, the directory is entered as the user."""
    setup = Setup(
        cwd="/a b",
        file="/bin/x",
        uid=1000,
        gid=100,
        groups=(100, 5),
        session=True,
        terminal=True,
        limits=[Limit(7, 10, None)],
        oom_score=500,
        subreaper=True,
        umask=0o22,
        keep=[64, 65],
    )
    assert build(setup, 70, ["x", "--", "-y"]) == [
        "e70", "m", "s", "t", "r7:10:-", "o500", "c", "k22", "G100,5", "g100", "u1000",
        "f/bin/x", "d/a b", "x64,65", "--", "x", "--", "-y",
    ]  # fmt: skip


def test_the_least_is_a_report_clean_signals_and_closed_descriptors() -> None:
    """Signals are reset and descriptors closed without being asked."""
    assert build(Setup(), 3, ["true"]) == ["e3", "m", "x", "--", "true"]


@pytest.mark.parametrize("setup", [Setup(uid=1), Setup(uid=1, gid=1), Setup(uid=1, groups=())])
def test_a_user_needs_groups(setup: Setup) -> None:
    """A user is never switched to while a group of ours would stay."""
    with pytest.raises(ValueError, match="group"):
        build(setup, 3, ["true"])


@pytest.mark.parametrize("argv", [[], [""]])
def test_a_program_is_needed(argv: list[str]) -> None:
    """Nothing to run is refused before anything is started."""
    with pytest.raises(ValueError, match="no program"):
        build(Setup(), 3, argv)


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", None),
        (b"! 2\n", ("execute", 2)),
        (b"d 20\n", ("enter the working directory", 20)),
        (b"u 1\n", ("set the user", 1)),
    ],
)
def test_a_report_names_step_and_errno(data: bytes, want: tuple[str, int] | None) -> None:
    """No report means that the program runs."""
    assert read_report(data) == want


def test_garbage_is_no_report() -> None:
    """What the program did not write is not taken for its word."""
    with pytest.raises(ValueError, match="not a report"):
        read_report(b"hello")
