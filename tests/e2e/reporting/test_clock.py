"""Heartbeats keep their interval while the host's clock jumps."""

import json
import time
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    heartbeats_taken,
    run_command,
    until_listed,
    until_state,
)
from tests.support.machine.clocks import WallClock

pytestmark = pytest.mark.real("faketime")
HOUR, DAY = 3600, 86_400
YEARS = 3650 * DAY


def until_it_beats_twice(agent: Daemon, registry: Daemon) -> None:
    """Wait for two heartbeats more; there are not many more in that time."""
    began, before = time.monotonic(), heartbeats_taken(agent, registry)
    until(
        lambda: heartbeats_taken(agent, registry) >= before + 2,
        "two heartbeats",
        within=SOON_SECONDS,
    )
    seconds = time.monotonic() - began
    # One on time, and one that makes up for a schedule that stands still.
    assert heartbeats_taken(agent, registry) - before <= 2 * (seconds + 1)


def last_log_time(agent: Daemon) -> str:
    """Return the time, by its own clock, of an agent's last log line."""
    lines = [json.loads(line) for line in agent.log().splitlines()]
    reported: str = lines[-1]["timestamp"]
    return reported


def test_a_host_whose_clock_jumps_goes_on_registering_at_its_pace(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = daemons.registry()
    wall = WallClock(tmp_path / "shift", monkeypatch)
    agent = daemons.agent(
        registries=[registry],
        node={"hostname": "web-1"},
        heartbeat_seconds=1,
        log={"format": "json"},
    )
    until_listed(registry, "web-1")

    for jump in (YEARS, -HOUR):
        wall.set_by(jump)
        until_it_beats_twice(agent, registry)

    assert "heartbeat failed" not in agent.log()
    wall.set_by(YEARS)
    registry.kill()
    until(lambda: "heartbeat failed" in agent.log(), "a line", within=SOON_SECONDS)
    assert last_log_time(agent) > "2030", "its clock has not jumped at all"
    assert run_command("rollcall-agent", agent, "status").returncode == 1


def test_a_host_that_boots_long_ago_registers_as_soon_as_its_clock_is_set(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("127.0.0.1")
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    registry = daemons.registry(tls=tls, trust=(str(authority.ca), None))
    agent = daemons.agent(node={"hostname": "web-1"}, heartbeat_seconds=1)
    agent.terminate()
    line = {"url": registry.base_url, "key_file": str(registry.key_path), "ca": str(authority.ca)}
    change_settings(agent, registries=[line])
    wall = WallClock(tmp_path / "shift", monkeypatch)
    wall.set_by(-5 * YEARS)
    agent.start()

    rejected = until_state(agent, registry.base_url, "bad_certificate")
    assert "not yet valid" in rejected["reason"]
    assert run_command("rollcall-agent", agent, "status").returncode == 1
    wall.set_by(0)

    until_listed(registry, "web-1")
    until_state(agent, registry.base_url, "taken")
    until_it_beats_twice(agent, registry)
    assert run_command("rollcall-agent", agent, "status").returncode == 0
    assert agent.log().count(f"registry={registry.base_url}") == 2
