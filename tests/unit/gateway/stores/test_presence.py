"""Who is at work on a store is known from locks that the kernel gives back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from gateway.stores.presence import Presence

ROOT = Path(__file__).parents[4]
MEMBER = """
import sys, time
from pathlib import Path
from gateway.stores.presence import Presence
print(Presence(Path(sys.argv[1])).enlist(), flush=True)
time.sleep(60)
"""


def test_nobody_is_on_the_list_before_joining(tmp_path: Path) -> None:
    """Looking puts nobody on the list and makes nothing."""
    one = Presence(tmp_path / "workers")
    assert one.enlisted() == frozenset()
    assert list(tmp_path.iterdir()) == []


def test_members_see_each_other_until_they_leave(tmp_path: Path) -> None:
    """Joining twice is joining once; leaving takes the file away."""
    one, two = Presence(tmp_path), Presence(tmp_path)
    first, second = one.enlist(), two.enlist()
    assert one.enlist() == first
    assert one.enlisted() == two.enlisted() == {first, second}
    one.leave()
    assert one.enlisted() == two.enlisted() == {second}
    two.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_member_is_gone_at_once(tmp_path: Path) -> None:
    """Kill -9 ends membership with no delay, and what the dead one left is removed."""
    here = Presence(tmp_path)
    me = here.enlist()
    with subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        them = other.stdout.readline().strip()
        assert here.enlisted() == {me, them}
        other.send_signal(signal.SIGKILL)
        other.wait(10)
    assert here.enlisted() == {me}
    assert [path.name for path in tmp_path.iterdir()] == [me]
    here.leave()


def test_a_stopped_member_is_not_taken_for_dead(tmp_path: Path) -> None:
    """A process that does nothing for a while keeps its place."""
    here = Presence(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        them = other.stdout.readline().strip()
        other.send_signal(signal.SIGSTOP)
        assert here.enlisted() == {them}
        other.send_signal(signal.SIGKILL)


def test_a_file_taken_for_a_dead_ones_is_made_anew(tmp_path: Path) -> None:
    """Whoever joins in the moment between making and locking the file joins all the same."""
    folder = tmp_path / "workers"
    one = Presence(folder)
    for _ in range(50):
        me = one.enlist()
        assert Presence(folder).enlisted() == {me}
        one.leave()
