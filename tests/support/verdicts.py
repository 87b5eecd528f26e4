"""How apps are, by their records and events: the command and the agent's page say the same."""

from typing import Any

TIME = "2026-11-28T12:{:02}:00.000Z"
CRASHING = {"crashing": True, "state": "restarting", "message": "ended by itself 3 times"}
BY_OPS = {"action": "stop", "outcome": "done", "by": "ops", "time": TIME.format(7)}
PORT = "driver failed: Bind for 0.0.0.0:80 failed: port is already allocated; tried twice"
CHECK = "unhealthy, and restarted again and again until it is healthy: GET /healthz answered 500"
HEALTHY = {"healthy", "running, unchecked"}
PULL = {"operation": "update", "step": "pulling", "percent": 40.0, "by": "ops"}


def happened(*actions: str) -> list[dict[str, Any]]:
    """Return events of the engine, one for each minute."""
    return [
        {"action": action, "time": TIME.format(minute)} for minute, action in enumerate(actions)
    ]


# What an app is beside the record of one that runs, its events, and the verdict.
CASES: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({"healthy": True}, [], "healthy"),
    ({}, [], "running, unchecked"),
    ({"health": {"path": "/"}}, [], "running; its check has not passed yet"),
    (
        {"healthy": False, "message": CHECK},
        [],
        "check failed: GET /healthz answered 500",
    ),
    (
        {**CRASHING, "exit_code": 3},
        happened(*["start", "die"] * 5),
        "exit 3, 5 times in ten minutes",
    ),
    (
        {**CRASHING, "exit_code": 1, "state": "running"},
        happened("die", *["start"] * 15, "die", "start", "die"),
        "exit 1, 2 times in ten minutes",
    ),
    (
        {**CRASHING, "exit_code": 137},
        happened("start", "oom", "die", "start", "oom", "die"),
        "out of memory, 2 times in ten minutes",
    ),
    (
        {"state": "exited", "exit_code": 137, "oom_killed": True},
        happened("start", "die"),
        "out of memory",
    ),
    # A child ran out of memory in an earlier run.
    (
        {"state": "exited", "exit_code": 137, "oom_killed": False},
        happened("start", "oom", "die", "start", "die"),
        "killed (SIGKILL)",
    ),
    ({"state": "exited", "exit_code": 143}, [], "killed (SIGTERM)"),
    ({"state": "exited", "exit_code": 255}, [], "exit 255"),
    ({"state": "exited", "exit_code": 127}, [], "exit 127: its command cannot be run"),
    ({"state": "exited", "message": PORT}, [], f"port taken: {PORT}"),
    (
        {"state": "created", "message": "No such image: shop:1"},
        [],
        "image gone: No such image: shop:1",
    ),
    (
        {"state": "failed", "message": "no server knows shop:9; it wrote:\nlines"},
        [],
        "it could not be created: no server knows shop:9",
    ),
    ({"state": "missing"}, [], "its container is gone"),
    ({"state": "paused"}, [], "paused"),
    (
        {"state": "exited", "desired": "stopped"},
        [BY_OPS, *happened("die", "stop")],
        f"stopped by ops at {TIME.format(7)}",
    ),
    (
        {"state": "updating", "progress": PULL},
        [],
        "being changed by ops: update, pulling (40 %)",
    ),
]
