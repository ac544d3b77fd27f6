r"""What is said to a living shell, and how its answers are read.

The shell reads its script from standard input, which only we write to; its standard
output is a private channel for answers; its standard error goes nowhere. Each run is
a few lines: the user's text, quoted, is given to `eval` with standard input at its
end and its output going to a pipe that belongs to this run alone. Then the shell
answers with a number that only this run was told, the exit status, and what is needed
to carry on in a new shell if this one is lost (exports; with bash functions and
aliases too). User code prints to its own pipe and does not know the number, so it
cannot end its run early or speak for another one.

Nothing of this touches a disk or an argument list.

Traps: after a syntax error inside `eval` bash does not recognise a reserved word at
the start of the next line, so every line here is a simple command. A backslash in
front of a name keeps aliases off it; `command` keeps functions off it, and keeps an
error in a special builtin from ending the shell.

Source: POSIX shell command language §2.9.1, §2.14; execd contract §5.
"""

from __future__ import annotations

from specs.names import ENV_COMMAND_ID

MAX_STATE = 4 << 20
"""Bytes of state kept to carry on with; a shell with more starts anew without it."""


def quote(text: str) -> str:
    """Write text as one literal word of shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def opening(*, bash: bool, cwd: str | None, state: bytes | None) -> bytes:
    """
    Return what a new shell is told first.

    Args:
        bash: the shell is bash.
        cwd: where to be; None: where it was started.
        state: what a lost shell last said, if this one takes its place.
    """
    lines = []
    if bash:
        lines.append(b"\\shopt -s expand_aliases")
    if state:
        text = quote(state.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        lines.append(b"\\command eval " + text + b" >/dev/null 2>&1 </dev/null")
    if cwd is not None:
        lines.append(b"\\command cd -- " + _bytes(quote(cwd)) + b" >/dev/null")
    return b"".join([line + b"\n" for line in lines])


def run(text: str, *, mark: str, nonce: str, output: str, cwd: str | None, bash: bool) -> bytes:
    """
    Return what the shell is told for one run.

    Args:
        text: the user's shell text.
        mark: marks every process of this run.
        nonce: known to this run and us.
        output: path the output is written to.
        cwd: directory to enter first.
        bash: the shell is bash.
    """
    enter = "" if cwd is None else f"\\command cd -- {quote(cwd)} >/dev/null 2>{quote(output)} && "
    state = "\\export -p\n"
    if bash:
        state += "\\declare -f\n\\alias -p\n"
    return _bytes(
        f"{ENV_COMMAND_ID}={quote(mark)}\n"
        f"\\export {ENV_COMMAND_ID}\n"
        f"{enter}\\command eval {quote(text)} </dev/null >{quote(output)} 2>&1\n"
        f'\\command echo "{nonce} $?"\n'
        f"{state}"
        f"\\command echo {nonce}\n"
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class Answers:
    """Reads the private channel of one shell."""

    __slots__ = ("_buffer", "_dropped", "_nonce", "_searched", "state", "status")

    def __init__(self) -> None:
        self._buffer = b""
        self._nonce = b""
        self._searched = 0
        self._dropped = False
        self.status: int | None = None
        self.state: bytes | None = None

    def expect(self, nonce: str) -> None:
        """A run begins: only answers with its number count from now on."""
        self._buffer = b""
        self._nonce = nonce.encode("ascii")
        self._searched = 0
        self._dropped = False
        self.status = None
        self.state = None

    def feed(self, data: bytes) -> bool:
        """
        Take what was read.

        Returns:
            Whether the run has been answered completely; `status` and `state` are set then.
        """
        if not self._nonce:
            return False
        self._buffer += data
        if self.status is None:
            head = self._nonce + b" "
            at = self._buffer.find(head)
            end = self._buffer.find(b"\n", at)
            if at < 0 or end < 0:
                self._buffer = self._buffer[max(0, at) :] if at >= 0 else self._buffer[-len(head) :]
                return False
            number = self._buffer[at + len(head) : end].strip()
            self.status = int(number) if number.isdigit() else 1
            self._buffer = self._buffer[end + 1 :]
            self._searched = 0
        last = self._nonce + b"\n"
        at = self._buffer.find(last, self._searched)
        if at < 0:
            if len(self._buffer) > MAX_STATE:
                self._dropped = True
            if self._dropped:
                self._buffer = self._buffer[-len(last) :]
            self._searched = max(0, len(self._buffer) - len(last))
            return False
        self.state = None if self._dropped else self._buffer[:at]
        self._nonce = b""
        self._buffer = b""
        return True
