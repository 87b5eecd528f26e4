"""Settings and logs of agents that report every second."""

from typing import Any

from tests.support.daemons import Daemon


def node_settings(hostname: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a host that reports every second."""
    return {"node": {"hostname": hostname, **more}, "heartbeat_seconds": 1}


def log_lines(daemon: Daemon, words: str) -> list[str]:
    """Return the log lines that contain these words."""
    return [line for line in daemon.log().splitlines() if words in line]
