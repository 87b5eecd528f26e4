"""What a daemon says at its start of settings that give keys away."""

import pytest

from tests.support.daemons import Daemon, Daemons

pytestmark = pytest.mark.real


def restarted_with_an_open_key(daemon: Daemon) -> str:
    """Let every user read the key of a daemon, start it again, and return its log."""
    assert "unsafe setting" not in daemon.log()
    assert daemon.terminate() == 0
    daemon.key_path.chmod(0o644)
    daemon.start()
    return daemon.log()


def test_a_registry_runs_and_warns_of_settings_that_give_keys_away(daemons: Daemons) -> None:
    log = restarted_with_an_open_key(daemons.registry())

    assert "unsafe setting" in log
    assert "keys[0].file: other users of this host can read" in log


def test_an_agent_runs_and_warns_of_settings_that_give_keys_away(daemons: Daemons) -> None:
    log = restarted_with_an_open_key(daemons.agent())

    assert "unsafe setting" in log
    assert "keys[0].file: other users of this host can read" in log
