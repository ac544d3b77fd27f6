"""Start execd: `execd [--port N] [--host H] [-- ENTRYPOINT ARGV...]`.

With an entrypoint execd is the sandbox's init: it listens, runs the entrypoint as its
child, forwards signals to it, reaps orphans and ends with its status. Orphans come to
execd only where it is PID 1 (the way sandboxes are started); elsewhere they go to
that namespace's init.
"""

from __future__ import annotations

import os
import sys

VERSION = "0.1.0"

USAGE = "usage: execd [--port N] [--host ADDRESS] [--version] [-- ENTRYPOINT ARGUMENT...]"

EXIT_USAGE = 2
EXIT_FAILED = 1


class BadArguments(Exception):
    """The command line is not understood."""


def parse(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """
    Split a command line into options and the entrypoint.

    Raises:
        BadArguments: an option is unknown or its value missing.
    """
    options: dict[str, str] = {}
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            if at == len(argv):
                raise BadArguments("an entrypoint is expected after --")
            return options, argv[at:]
        if word == "--version":
            options["version"] = ""
            continue
        name, equals, value = word.partition("=")
        if name not in {"--port", "--host"}:
            raise BadArguments(f"unknown argument {word}")
        if not equals:
            if at == len(argv):
                raise BadArguments(f"{name} needs a value")
            value = argv[at]
            at += 1
        options[name[2:]] = value
    return options, []


def parse_port(text: str) -> int:
    """
    Read a port number; 0 takes a free one.

    Raises:
        BadArguments: it is not one.
    """
    if not text.isascii() or not text.isdigit() or not 0 <= int(text[:6]) < 65536:
        raise BadArguments(f"--port {text}: a number from 0 to 65535 is expected")
    return int(text)


def main(argv: list[str]) -> int:
    """Run execd; return its exit status."""
    from execd.config import BadSetting, load

    try:
        options, entrypoint = parse(argv)
        if "version" in options:
            sys.stdout.write(f"execd {VERSION}\n")
            return 0
        port = parse_port(options["port"]) if "port" in options else None
    except BadArguments as error:
        sys.stderr.write(f"execd: {error}\n{USAGE}\n")
        return EXIT_USAGE
    given = {} if port is None else {"port": port}
    try:
        settings = load(os.environ, host=options.get("host", "0.0.0.0"), **given)
    except BadSetting as error:
        sys.stderr.write(f"execd: {error}\n")
        return EXIT_USAGE
    from execd.app import serve
    from execd.loop import run

    try:
        return run(serve(settings, entrypoint))
    except OSError as error:
        sys.stderr.write(f"execd: cannot serve on port {settings.port}: {error.strerror}\n")
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
