"""The command line, each promise as one sentence."""

import pytest

from execd.__main__ import BadArguments, main, parse, parse_port


@pytest.mark.parametrize(
    ("argv", "options", "entrypoint"),
    [
        ([], {}, []),
        (["--port", "1", "--host=::1"], {"port": "1", "host": "::1"}, []),
        (["--", "sh", "-c", "--port"], {}, ["sh", "-c", "--port"]),
        (["--port=1", "--", "--", "x"], {"port": "1"}, ["--", "x"]),
        (["--version"], {"version": ""}, []),
    ],
)
def test_what_follows_the_dashes_is_the_entrypoint(
    argv: list[str], options: dict[str, str], entrypoint: list[str]
) -> None:
    """Options come first; everything behind `--` belongs to the entrypoint."""
    assert parse(argv) == (options, entrypoint)


@pytest.mark.parametrize("argv", [["--port"], ["--nope"], ["sh"], ["--"], ["-p", "1"]])
def test_an_unknown_argument_is_refused(argv: list[str]) -> None:
    """A command line is understood or refused."""
    with pytest.raises(BadArguments):
        parse(argv)
    assert main(argv) == 2


@pytest.mark.parametrize("text", ["", "-1", "65536", "x", "1e3", "9" * 50, "²"])
def test_a_port_is_a_number(text: str) -> None:
    """A port is a decimal number from 0 to 65535."""
    with pytest.raises(BadArguments):
        parse_port(text)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the version and nothing is started."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("execd ")
