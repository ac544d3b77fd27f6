"""The event loop: coroutines over epoll, timers, child exits, cancellation.

Knows nothing of HTTP. One loop per process, one owner of every child's exit
status (so no reaper can steal one from whoever waits), cancellation thrown at
the point where a task waits.
"""

from execd.loop.scheduler import (
    Cancelled,
    Event,
    Loop,
    Task,
    TimedOut,
    Timer,
    checkpoint,
    child_exit,
    complain,
    current_loop,
    deadline,
    now,
    readable,
    run,
    sleep,
    start,
    writable,
)
from execd.loop.transfer import close_fd, read_some, recv_some, send_all, write_all

__all__ = [
    "Cancelled",
    "Event",
    "Loop",
    "Task",
    "TimedOut",
    "Timer",
    "checkpoint",
    "child_exit",
    "close_fd",
    "complain",
    "current_loop",
    "deadline",
    "now",
    "read_some",
    "readable",
    "recv_some",
    "run",
    "send_all",
    "sleep",
    "start",
    "writable",
    "write_all",
]
