"""A machine's clock that jumps while its registry runs: it is shown, and decides nothing."""

from pathlib import Path
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.clocks import WallClock
from tests.support.registry.stores.sqlite_store import stored_last_update

pytestmark = pytest.mark.real("faketime")

HOUR, DAY = 3600, 86_400
JUMPS = (DAY, -DAY)
SOON_SECONDS = 20.0
EMPTY: dict[str, Any] = {"labels": [], "kv": {}}


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(tmp_path / "shift", monkeypatch)


def states(registry: Daemon) -> dict[str, int]:
    """Return how many nodes are fresh and how many stale."""
    lines = registry.ask("GET", "/metrics").text.splitlines()
    found = [line for line in lines if line.startswith("rollcall_registry_nodes{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in found}


def beat(registry: Daemon, hostname: str) -> int:
    """Send a heartbeat, and return its last_update, in Unix seconds."""
    last_update: int = registry.ask("POST", f"/nodes/{hostname}", json=EMPTY).json()[0][
        "last_update"
    ]
    return last_update


def stored(registry: Daemon, hostname: str) -> int:
    return stored_last_update(registry.config_path.with_name("store.db"), hostname)


def until_stored(registry: Daemon, hostname: str, last_update: int) -> None:
    """Wait until a heartbeat is on disk: the timers still run."""
    until(lambda: stored(registry, hostname) == last_update, "it on disk", within=SOON_SECONDS)


def names(registry: Daemon, query: str = "") -> list[str]:
    return [node["hostname"] for node in registry.ask("GET", f"/nodes{query}").json()]


def test_a_jump_of_the_clock_makes_no_living_host_stale_and_forgets_none(
    daemons: Daemons, wall: WallClock
) -> None:
    limits = {"stale_after_seconds": 600, "expire_after_seconds": 1200}
    registry = daemons.registry(nodes=limits, log={"level": "info"})
    first = beat(registry, "alive")

    for jump in JUMPS:
        wall.set_by(jump)

        shown = beat(registry, "witness")
        assert abs(shown - first - jump) < HOUR / 2  # it has jumped
        assert states(registry) == {"fresh": 2, "stale": 0}
        assert names(registry) == ["alive", "witness"]
        assert names(registry, "?max_age=600") == ["alive", "witness"]
        until_stored(registry, "witness", shown)
    assert registry.ask("GET", "/nodes/alive").json()[0]["last_update"] == first


def test_a_jump_of_the_clock_makes_no_silent_host_fresh_and_forgets_none(
    daemons: Daemons, wall: WallClock
) -> None:
    limits = {"stale_after_seconds": 1, "expire_after_seconds": 1200}
    registry = daemons.registry(nodes=limits, log={"level": "info"})
    beat(registry, "silent")
    until(lambda: states(registry)["stale"] == 1, "a stale host", within=SOON_SECONDS)

    for jump in JUMPS:
        wall.set_by(jump)

        assert states(registry) == {"fresh": 0, "stale": 1}
        assert names(registry) == ["silent"]


def test_a_jump_of_the_clock_before_or_after_an_end_makes_nobody_older(
    daemons: Daemons, wall: WallClock
) -> None:
    limits = {"stale_after_seconds": 600, "expire_after_seconds": 1200}
    registry = daemons.registry(nodes=limits, log={"level": "info"})
    beat(registry, "alive")

    for jump in JUMPS:
        wall.set_by(jump)
        registry.terminate()
        wall.set_by(-jump)
        registry.start()

        assert states(registry) == {"fresh": 1, "stale": 0}
        assert names(registry, "?max_age=600") == ["alive"]
