"""Be the sandbox's init: run the entrypoint, pass signals on, end with its status.

The entrypoint keeps the container's directory, user, standard output and error. It
leads a session of its own. When it ends, commands and sessions get a short grace; when
the engine stops the container, it gets the signal and as much time as the engine gives.
Orphans are reaped by the loop.

Source: execd contract §11; signal(7); the exit statuses of a shell (127, 126, 128+n).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`; typeshed has no stub
import errno
import os

from execd.loop import Event, child_exit, complain, current_loop
from execd.processes.spawn import CannotStart, Program, Spawner, find_spawn_program
from execd.processes.tree import protect, send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    class HasEnvironment(Protocol):
        """The part of the settings that is used here."""

        @property
        def base_environ(self) -> Mapping[str, str]:
            """The container's environment, our names removed."""

    class Closable(Protocol):
        """What is ended together with the entrypoint."""

        async def close(self) -> None:
            """End commands and sessions."""


FORWARDED = (
    _signal.SIGTERM,
    _signal.SIGINT,
    _signal.SIGHUP,
    _signal.SIGQUIT,
    _signal.SIGUSR1,
    _signal.SIGUSR2,
    _signal.SIGWINCH,
)
STOPPING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGQUIT)

# What clients send as the entrypoint when they only want the sandbox to stay.
IDLE = (["tail", "-f", "/dev/null"], ["sleep", "infinity"])


async def supervise(
    argv: list[str], settings: HasEnvironment, services: Closable, spawner: Spawner | None = None
) -> int:
    """
    Run the entrypoint to its end, then end everything else.

    Returns:
        The exit status for execd: the entrypoint's, 128+n when signal n ended it, 127 when it is not
        in the image, 126 when it cannot be executed.
    """
    spawner = Spawner(find_spawn_program()) if spawner is None else spawner
    loop = current_loop()
    pid = 0
    stopped = Event()

    def forwarder(number: int) -> Callable[[], None]:
        def forward() -> None:
            if pid > 0 and loop.is_watched(pid):
                send_to_group(pid, number)
            if number in STOPPING:
                stopped.set()

        return forward

    for number in FORWARDED:
        loop.on_signal(number, forwarder(number))
    program = Program(argv, settings.base_environ, stdin=0, stdout=1, stderr=2)
    try:
        pid = await spawner.start(program)
    except CannotStart as failure:
        if failure.exit_code == 127 and argv in IDLE:
            await stopped.wait()
            await services.close()
            return 0
        complain(f"entrypoint {argv[0]}: {describe(failure)}")
        return failure.exit_code
    protect(pid)
    status = int(await child_exit(pid))
    await services.close()
    return exit_status(status)


def describe(failure: CannotStart) -> str:
    """Say in one line why the entrypoint does not run."""
    if failure.exit_code == 127:
        return "not found in the image"
    return failure.message


def exit_status(status: int) -> int:
    """Translate a wait status into an exit status, as a shell does."""
    number = status & 0x7F
    return 128 + number if number else (status >> 8) & 0xFF


def send_to_group(pid: int, number: int) -> None:
    """Signal the group that `pid` leads; where it has left that group, itself."""
    try:
        os.killpg(pid, number)
    except OSError as failure:
        if failure.errno not in {errno.ESRCH, errno.EPERM}:
            raise
        send_signal(pid, number)
