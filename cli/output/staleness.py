"""What people are told of nodes that are stale: since when, why, and where to look."""

from collections.abc import Mapping
from datetime import UTC, datetime

from cli.output.program import typed
from cli.output.text import age

UNIT = "rollcall-agent"
REGISTRY_UNIT = "rollcall-registry"
AGENT_CAUSES = "its agent has ended, or the host is down or cut off from the registry"
SCRIPT_CAUSES = "what posts its heartbeats has ended, or is cut off from the registry"


def moment(unix_seconds: float) -> str:
    """Return a time such as `2026-11-26 20:58:09 UTC`; of one that no calendar has, the number."""
    try:
        return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"Unix time {unix_seconds:g}"


def silence(last_update: float, now: float) -> str:
    """Return since when a node is silent."""
    return f"no heartbeat since {moment(last_update)} ({age(now - last_update)} ago)"


def limit(stale_after_seconds: float) -> str:
    """Return after which time a node is stale."""
    return f"stale after {stale_after_seconds:g} s without a heartbeat"


def causes(kv: Mapping[str, str]) -> str:
    """Return why a node with this kv may have fallen silent."""
    return AGENT_CAUSES if "agent.url" in kv else SCRIPT_CAUSES


def gone(rollcall: str, hostname: str) -> str:
    """Return what to do if a host will not come back; ``rollcall`` is how commands begin."""
    return f"if the host is gone for good: {typed(f'{rollcall} forget', hostname)}"


def steps(hostname: str, kv: Mapping[str, str]) -> str:
    """Return what to look at on the host itself."""
    if "agent.url" not in kv:
        return f"{hostname} reports no agent: look at the script that posts its heartbeats"
    return f"on {hostname}: `systemctl status {UNIT}`, then `journalctl -u {UNIT}`"
