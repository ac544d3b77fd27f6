"""Whole families end, however they hide."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from execd import loop
from execd.processes import tree
from execd.processes.family import Process
from execd.processes.spawn import Program, Spawner
from execd.processes.tree import Family, process_table
from specs.names import ENV_COMMAND_ID

Run = Callable[[Any], Any]

HIDING = {
    "child": "sleep 987 & wait",
    "pipeline": "sleep 987 | sleep 987",
    "setsid": "setsid sleep 987 & setsid -f sleep 987; wait",
    "double fork": "(setsid sh -c 'sleep 987 & sleep 987' &) ; sleep 987",
    "orphan": "(sleep 987 &) ; sleep 987",
    "ignores TERM": "trap '' TERM HUP INT; sleep 987 & sleep 987 & wait; wait",
    "forks on": "f() { sleep 0.001; f & }; f; sleep 987",
    "stopped": "sleep 987 & kill -STOP $!; kill -STOP $$; wait",
}


async def family(text: str, mark: str) -> Family:
    environ = {"PATH": os.environ["PATH"], ENV_COMMAND_ID: mark}
    null = os.open("/dev/null", os.O_RDWR)
    try:
        pid = await Spawner(None).start(Program(["sh", "-c", text], environ, stdout=null, stderr=null))
    finally:
        os.close(null)
    return Family(pid, mark)


@pytest.mark.parametrize("name", HIDING)
def test_a_kill_leaves_nothing(name: str, run: Run) -> None:
    """R34, R38: after a kill no process of the family is left, wherever it went."""

    async def main() -> tuple[bool, int]:
        found = await family(HIDING[name], f"kill-{name}-{os.getpid()}")
        await loop.sleep(0.15)
        gone = await found.kill()
        await loop.sleep(0.05)
        return gone, len(found.find())

    assert run(main()) == (True, 0)


@pytest.mark.parametrize("name", ["child", "setsid", "ignores TERM"])
def test_a_termination_leaves_nothing_either(name: str, run: Run) -> None:
    """TERM first; what ignores it is killed after the grace."""

    async def main() -> tuple[bool, int]:
        found = await family(HIDING[name], f"term-{name}-{os.getpid()}")
        await loop.sleep(0.1)
        gone = await found.terminate(0.3)
        return gone, len(found.find())

    assert run(main()) == (True, 0)


def test_a_termination_gives_time(run: Run) -> None:
    """A program that ends by itself within the grace gives its own status."""

    async def main() -> int:
        text = "trap 'kill $!; exit 3' TERM; sleep 987 & wait"
        found = await family(text, f"time-{os.getpid()}")
        await loop.sleep(0.1)
        assert await found.terminate(5)
        return int(await loop.child_exit(found.leader))

    assert run(main()) == 3 << 8


def test_others_are_not_touched(run: Run) -> None:
    """Another command, its children and ourselves are never members."""

    async def main() -> list[int]:
        one = await family("sleep 987 & wait", f"one-{os.getpid()}")
        two = await family("sleep 987 & wait", f"two-{os.getpid()}")
        await loop.sleep(0.1)
        mine = {process.pid for process in one.find()}
        assert one.leader in mine
        assert os.getpid() not in mine
        assert len(mine) == 2
        await one.kill()
        left = two.find()
        await two.kill()
        return [process.pid for process in left if process.pid in mine or process.pid == two.leader]

    assert len(run(main())) == 1


def test_a_prefix_marks_all_runs_of_a_session(run: Run) -> None:
    """A mark that ends in a slash matches everything below it and nothing else."""

    async def main() -> tuple[bool, bool]:
        mark = f"session-{os.getpid()}"
        one = await family("sleep 987", f"{mark}/1")
        other = await family("sleep 987", f"{mark}x/1")
        await Family(-1, f"{mark}/").kill()
        await loop.sleep(0.05)  # a dying process has lost its environment before it is dead
        gone = not one.find()
        alive = bool(other.find())
        await other.kill()
        return gone, alive

    assert run(main()) == (True, True)


def test_the_table_holds_us() -> None:
    """The process table is the kernel's."""
    assert os.getpid() in {process.pid for process in process_table()}


def test_many_families_share_one_look(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of ending many commands at once does not grow with the square of their number."""
    looks = 0
    look = tree.process_table

    def counted() -> list[Process]:
        nonlocal looks
        looks += 1
        return look()

    monkeypatch.setattr(tree, "process_table", counted)

    async def main() -> list[bool]:
        families = [await family("sleep 987 & wait", f"many-{n}-{os.getpid()}") for n in range(20)]
        await loop.sleep(0.1)
        return [await task.join() for task in [loop.start(one.kill(), "kill") for one in families]]

    assert run(main()) == [True] * 20
    assert looks < 20


def test_marks_are_known_by_their_beginnings() -> None:
    """A run's mark counts for its session too."""
    environ = f"A=1\0{ENV_COMMAND_ID}=s/1/x\0{ENV_COMMAND_ID}=other\0B={ENV_COMMAND_ID}=no\0".encode()
    assert tree.keys_of(environ) == {b"s/1/x", b"s/", b"s/1/", b"other"}
    assert tree.keys_of(b"A=1\0") == set()
