"""A registry whose hosts were all cut off a day ago keeps them, until a person forgets them."""

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.registry.stores.sqlite_store import fill

pytestmark = pytest.mark.real
DAY = 86_400
HOSTS = 1000
SOON_SECONDS = 60.0
SETTINGS = {"stale_after_seconds": 1, "expire_after_seconds": DAY, "warm_up_seconds": 0}


async def silent_for_a_day(database: Path, hosts: int) -> None:
    """Make a store of hosts that were cut off a day ago, within half a minute."""
    await fill(database, *[f"web-{number:04}" for number in range(hosts)])
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE clock SET uptime = uptime + ?", [DAY + 30])
        connection.execute("UPDATE node SET uptime = uptime + substr(hostname, -2) % 30")
        connection.commit()


def counts(registry: Daemon) -> tuple[int, int]:
    nodes = registry.ask("GET", "/status").json()["nodes"]
    return nodes["total"], nodes["held"]


async def test_hosts_that_were_cut_off_together_are_held_over_starts_and_forgotten_by_a_command(
    daemons: Daemons, tmp_path: Path
) -> None:
    await silent_for_a_day(tmp_path / "r.db", HOSTS)
    registry = daemons.registry(store=f"sqlite:///{tmp_path}/r.db", nodes=SETTINGS)
    for _ in range(2):
        until(lambda: counts(registry) == (HOSTS, HOSTS), "all are held", within=SOON_SECONDS)
        registry.kill()
        registry.start()
    until(lambda: counts(registry) == (HOSTS, HOSTS), "all are held", within=SOON_SECONDS)
    assert len(registry.ask("GET", "/nodes?held=true").json()) == HOSTS
    assert f"rollcall_registry_nodes_held {HOSTS}.0" in registry.ask("GET", "/metrics").text
    registry.ask("POST", "/nodes/web-0000", json={"labels": [], "kv": {}})

    rejected = registry.ask("DELETE", "/nodes/web-0000?stale=true")
    for hostname in [node["hostname"] for node in registry.ask("GET", "/nodes?held=true").json()]:
        assert registry.ask("DELETE", f"/nodes/{hostname}?stale=true").status_code == 200

    assert rejected.status_code == 409
    assert [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == ["web-0000"]


def test_time_in_which_the_registry_was_stopped_counts_against_no_host(daemons: Daemons) -> None:
    limits = {"stale_after_seconds": 5, "expire_after_seconds": 6, "warm_up_seconds": 0}
    registry = daemons.registry(nodes=limits)
    registry.ask("POST", "/nodes/web-1", json={"labels": [], "kv": {}})

    os.kill(registry.pid, signal.SIGSTOP)
    time.sleep(8)  # nothing is to be waited for but time
    os.kill(registry.pid, signal.SIGCONT)

    assert len(registry.ask("GET", "/nodes?stale=false").json()) == 1
    until(lambda: not registry.ask("GET", "/nodes").json(), "it expires", within=SOON_SECONDS)
