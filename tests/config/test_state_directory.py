"""Where the store is if the settings do not say so."""

import os
import subprocess
import sys

import pytest

STORES = """
from config.agent import AgentSettings
from config.registry import RegistrySettings
print(RegistrySettings().store, AgentSettings().store)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({}, "/var/lib/rollcall"),
        ({"STATE_DIRECTORY": "/var/lib/rollcall-blue"}, "/var/lib/rollcall-blue"),
        ({"STATE_DIRECTORY": "/var/lib/first:/var/lib/second"}, "/var/lib/first"),
    ],
)
def test_it_is_in_the_state_directory_that_systemd_made(
    environment: dict[str, str], folder: str
) -> None:
    others = {name: value for name, value in os.environ.items() if name != "STATE_DIRECTORY"}
    done = subprocess.run(
        [sys.executable, "-c", STORES],
        env=others | environment,
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.split() == [f"sqlite://{folder}/{name}.db" for name in ("registry", "agent")]
