"""Where a command goes, and which key it shows there."""

from pathlib import Path

import pytest

from boxwright.access import FIRST_KEY_FILE, NoKey, base_url, find_key, is_local


@pytest.mark.parametrize(
    ("domain", "base"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("https://box.example/", "https://box.example"),
        ("http://box.example/v1", "http://box.example"),
        ("[::1]:80", "http://[::1]:80"),
    ],
)
def test_a_domain_becomes_an_address(domain: str, base: str) -> None:
    """host:port means http; a scheme that is named stays; the path of the API is ours to add."""
    assert base_url(domain) == base


@pytest.mark.parametrize(
    ("base", "local"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:8080", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:8080", True),
        ("http://10.0.0.1:8080", False),
        ("https://localhost.example", False),
        ("http://[2001:db8::1]:1", False),
    ],
)
def test_only_loopback_is_local(base: str, local: bool) -> None:
    """An address is this machine's only when it cannot be another's."""
    assert is_local(base) is local


def test_the_environment_wins_and_the_clients_variable_first(tmp_path: Path) -> None:
    """OPEN_SANDBOX_API_KEY is taken before BOXWRIGHT_API_KEY, and both before the kept key."""
    (tmp_path / FIRST_KEY_FILE).write_text("kept\n")
    both = {"OPEN_SANDBOX_API_KEY": "client", "BOXWRIGHT_API_KEY": "own"}
    assert find_key("http://localhost:1", tmp_path, both).value == "client"
    assert find_key("http://localhost:1", tmp_path, {"BOXWRIGHT_API_KEY": "own"}).value == "own"
    assert find_key("http://localhost:1", tmp_path, {}).value == "kept"


def test_the_kept_key_is_shown_to_this_machine_only(tmp_path: Path) -> None:
    """Another machine does not get to see the first key of this one."""
    (tmp_path / FIRST_KEY_FILE).write_text("kept\n")
    with pytest.raises(NoKey, match="OPEN_SANDBOX_API_KEY"):
        find_key("http://box.example:8080", tmp_path, {})


def test_a_key_does_not_print_itself(tmp_path: Path) -> None:
    """The key's text is not in what a log or a message would show of it."""
    assert "very-secret" not in repr(find_key("http://x", tmp_path, {"OPEN_SANDBOX_API_KEY": "very-secret"}))
