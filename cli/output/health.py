"""How an app or a host is, in words: from its record and events, or since it is silent."""

import re
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cli.output.text import age, typed

SIGNAL_BASE = 128
NOT_RUNNABLE = (126, 127)
WINDOW = timedelta(minutes=10)
LOST = {"failed": "it could not be created", "missing": "its container is gone"}
DOWN = ("created", "exited", "dead", "restarting")
PORT = re.compile(r"port is already allocated|address already in use|port \d+ is (held|in use)")
IMAGE = re.compile(r"no such image|manifest unknown|image .* is gone", re.IGNORECASE)
UNHEALTHY = re.compile(r"unhealthy.*?: (.*)", re.DOTALL)
# Behind the reason, a message has the last lines that an app wrote.
LAST_LINES = re.compile(r"[;,]? ?it wrote:\n.*", re.DOTALL)
UNIT = "rollcall-agent"
REGISTRY_UNIT = "rollcall-registry"
AGENT_CAUSES = "its agent has ended, or the host is down or cut off from the registry"
SCRIPT_CAUSES = "what posts its heartbeats has ended, or is cut off from the registry"


class Verdict(NamedTuple):
    """Whether an app is healthy, why, and the command of `rollcall app` that shows more."""

    is_healthy: bool
    text: str
    look: str = "show"


def verdict(record: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return how an app is; ``events`` are its last ones, the oldest first."""
    message = LAST_LINES.sub("", record["message"] or "")
    if record["state"] == "running" and record["desired"] == "running":
        return _running(record, events, message)
    text, look = _why_not_running(record, events, message)
    return Verdict(is_healthy=False, text=text, look=look)


def _running(
    record: Mapping[str, Any], events: Sequence[Mapping[str, Any]], message: str
) -> Verdict:
    if record.get("crashing"):
        text = f"{_end(record, events)}{_times(events)}"
        return Verdict(is_healthy=False, text=text, look="logs")
    if record["healthy"] is False:
        found = UNHEALTHY.match(message)
        text = _caused("check failed", found[1] if found else message)
        return Verdict(is_healthy=False, text=text, look="logs")
    if record["healthy"] is None and record.get("health"):
        return Verdict(is_healthy=False, text="running; its check has not passed yet")
    return Verdict(is_healthy=True, text="healthy" if record["healthy"] else "running, unchecked")


def _why_not_running(
    record: Mapping[str, Any], events: Sequence[Mapping[str, Any]], message: str
) -> tuple[str, str]:
    """Return why an app does not run, and the command that shows more."""
    state = record["state"]
    if record.get("progress"):
        return _progress(record["progress"]), "show"
    if state in LOST:
        return _caused(LOST[state], message), "events"
    if record["desired"] == "stopped":
        return _stopped(events), "events"
    return _why_down(record, events, message)


def _why_down(
    record: Mapping[str, Any], events: Sequence[Mapping[str, Any]], message: str
) -> tuple[str, str]:
    state = record["state"]
    if record.get("crashing"):
        return f"{_end(record, events)}{_times(events)}", "logs"
    if state not in DOWN:
        return _caused(state, message), "events"
    if PORT.search(message):
        return f"port taken: {message}", "show"
    if IMAGE.search(message):
        return f"image gone: {message}", "history"
    ended = _end(record, events) if state != "created" else "not started"
    return _caused(ended, message), "logs"


def _caused(text: str, message: str) -> str:
    return f"{text}: {message}" if message else text


def _progress(progress: Mapping[str, Any]) -> str:
    step, percent = progress.get("step"), progress.get("percent")
    done = "" if percent is None else f" ({percent:g} %)"
    by = "" if progress.get("by") is None else f" by {progress['by']}"
    return f"being changed{by}: {progress.get('operation', 'operation')}, {step or 'begun'}{done}"


def _stopped(events: Sequence[Mapping[str, Any]]) -> str:
    """Return who stopped an app; the engine's own word for it does not say who."""
    for event in reversed(events):
        if event["action"] == "stop" and event.get("outcome") == "done":
            return f"stopped by {event.get('by')} at {event['time']}"
    return "stopped"


def _end(record: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str:
    """Return how an app ended the last time."""
    code = record.get("exit_code")
    if record.get("oom_killed") or _ran_out_of_memory(events):
        return "out of memory"
    if code is None:
        return "ended"
    if code in NOT_RUNNABLE:
        return f"exit {code}: its command cannot be run"
    is_signal = SIGNAL_BASE < code <= SIGNAL_BASE + signal.SIGTERM
    return f"killed ({signal.Signals(code - SIGNAL_BASE).name})" if is_signal else f"exit {code}"


def _ran_out_of_memory(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the engine has said so since the app was started for the last run that ended.

    Programs of an app may run out of memory while it goes on.
    """
    actions = [event["action"] for event in events]
    while actions and actions.pop() != "die":
        pass
    since = next((each for each in reversed(actions) if each in ("start", "oom")), None)
    return since == "oom"


def _times(events: Sequence[Mapping[str, Any]]) -> str:
    """Return how often an app has ended in the ten minutes before its last end."""
    ends = [datetime.fromisoformat(each["time"]) for each in events if each["action"] == "die"]
    count = sum(ends[-1] - each <= WINDOW for each in ends)
    return f", {count} times in ten minutes" if count > 1 else ""


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
