"""What `boxwright config` says about settings."""

import dataclasses

from boxwright.config import differences
from gateway.config import Settings


def test_defaults_differ_in_nothing() -> None:
    """The default settings have nothing to report."""
    assert differences(Settings()) == {}


def test_a_changed_key_is_named_and_a_secret_is_not_shown() -> None:
    """A difference names its section and key; the API key's value stays hidden."""
    settings = Settings()
    changed = dataclasses.replace(
        settings, server=dataclasses.replace(settings.server, port=9000, api_key="very-secret-key")
    )
    assert differences(changed) == {"server.port": 9000, "server.api_key": "…"}
