"""A registry that is cut off, from the servers or its clients; clocks that jump."""

import platform
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort, merged
from tests.support.machine.clocks import ServerClock, WallClock
from tests.support.registry.cut_off import Cable, ServerCables
from tests.support.registry.load.histories import VISIBLE_SECONDS
from tests.support.registry.nats.servers import NatsCluster, NatsServer

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
# Longer than it takes to notice that the servers are away, also on a slow machine.
STALE_SECONDS = 12
QUICK = {"nodes": {"stale_after_seconds": 5}}
NO_ANSWER_SECONDS = 5
MIN_REJECTED = 3
HOUR = 3600
START = Callable[..., Daemon]


@pytest.fixture
def way(servers: NatsCluster, free_port: FreePort) -> Iterator[ServerCables]:
    """Yield ways to the servers that can be cut."""
    with ServerCables(servers, free_port) as way:
        yield way


def post(registry: Daemon, hostname: str, label: str = "prometheus:web") -> int:
    body = {"labels": [label], "kv": {}}
    return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code


def accept(registry: Daemon, hostname: str, label: str = "prometheus:web") -> None:
    """Send a heartbeat until it is accepted."""
    until(
        lambda: post(registry, hostname, label) == 200, f"{hostname} accepted", within=SOON_SECONDS
    )


def states(registry: Daemon) -> tuple[bool, bool]:
    """Return whether one node is fresh, and whether one is stale."""
    text = registry.ask("GET", "/metrics").text
    fresh = 'rollcall_registry_nodes{state="fresh"} 1.0' in text
    return fresh, 'rollcall_registry_nodes{state="stale"} 1.0' in text


def same(one: Daemon, other: Daemon) -> bool:
    return one.ask("GET", "/nodes").content == other.ask("GET", "/nodes").content


def test_a_registry_that_is_cut_off_says_so_and_catches_up(
    way: ServerCables, start_registry: START, bucket: str
) -> None:
    quick = {"nodes": {"stale_after_seconds": STALE_SECONDS}}
    there = start_registry(**quick)
    here = start_registry(store=way.url(bucket), **quick)
    accept(here, "alive")
    accept(here, "silent")

    way.cut()

    def is_cut_off() -> bool:
        accept(there, "alive")  # the others go on
        return post(here, "alive") == 503

    until(is_cut_off, "the cut", within=SOON_SECONDS)

    def one_is_stale_there() -> bool:
        accept(there, "alive", "changed")
        return states(there) == (True, True)

    until(one_is_stale_there, "a stale node", within=SOON_SECONDS)
    assert here.ask("GET", "/nodes").status_code == 200
    assert "Rollcall-Store-Age" in here.ask("GET", "/nodes").headers
    assert len(here.ask("GET", "/prometheus/web?format=http_sd").json()) == 2
    assert 'rollcall_registry_nodes{state="stale"} 0.0' in here.ask("GET", "/metrics").text

    way.mend()

    def has_caught_up() -> bool:
        accept(there, "alive", "changed")
        is_healthy = here.ask("GET", "/healthz").status_code == 200
        return is_healthy and states(here) == (True, True) and same(here, there)

    until(has_caught_up, "the same here", within=SOON_SECONDS)
    accept(here, "silent")


def test_a_registry_that_is_cut_off_confirms_nothing_that_another_one_has_changed(
    way: ServerCables, start_registry: START, bucket: str
) -> None:
    there, here = start_registry(), start_registry(store=way.url(bucket))
    accept(there, "x", "first")
    until(lambda: same(here, there), "the same here", within=SOON_SECONDS)
    way.cut()
    accept(there, "x", "second")
    late = time.monotonic() + VISIBLE_SECONDS

    rejected = 0
    while rejected < MIN_REJECTED:  # each takes some seconds
        began, status = time.monotonic(), post(here, "x", "first")
        assert began < late or status == 503
        rejected += status == 503

    way.mend()
    accept(here, "x", "first")
    until(lambda: same(here, there), "the same here", within=SOON_SECONDS)
    assert "first" in there.ask("GET", "/nodes/x").text  # the last one wins


def test_a_registry_that_no_agent_asks_still_knows_who_is_alive(start_registry: START) -> None:
    asked, unasked = start_registry(**QUICK), start_registry(**QUICK)
    accept(asked, "silent")

    def one_is_stale() -> bool:
        accept(asked, "alive")
        return states(unasked) == (True, True)

    until(one_is_stale, "a stale node", within=SOON_SECONDS)


@pytest.mark.release("what others report is in the test above, without a cut")
def test_a_registry_that_is_cut_off_from_its_clients_learns_from_the_others(
    start_registry: START, free_port: FreePort
) -> None:
    here, elsewhere = start_registry(**QUICK), start_registry(**QUICK)
    headers = {"Authorization": f"Bearer {here.key}"}

    def post_through(cable: Cable, label: str) -> int:
        url, body = f"http://127.0.0.1:{cable.port}/nodes/alive", {"labels": [label], "kv": {}}
        return requests.post(url, json=body, headers=headers, timeout=NO_ANSWER_SECONDS).status_code

    def one_is_stale() -> bool:
        accept(elsewhere, "alive")
        return states(here) == (True, True)

    def is_taken_late() -> bool:
        return "late" in elsewhere.ask("GET", "/nodes/alive").text and same(here, elsewhere)

    with Cable(free_port(), here.port) as cable:
        accept(here, "silent")
        until(lambda: post_through(cable, "x") == 200, "a heartbeat", within=SOON_SECONDS)
        cable.cut()
        with pytest.raises(requests.Timeout):
            post_through(cable, "late")
        until(one_is_stale, "a stale node", within=SOON_SECONDS)
        assert same(here, elsewhere)

        cable.mend()
        until(is_taken_late, "what was on its way", within=SOON_SECONDS)
        until(lambda: post_through(cable, "y") == 200, "a heartbeat", within=SOON_SECONDS)


@pytest.mark.real("faketime")
def test_clocks_that_jump_make_no_node_stale(
    start_registry: START, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = start_registry(nodes={"stale_after_seconds": 60})
    clock = WallClock(tmp_path / "clock", monkeypatch)
    jumping = start_registry(nodes={"stale_after_seconds": 60})
    accept(jumping, "a")
    for seconds in (HOUR, -2 * HOUR, 0):
        clock.set_by(seconds)
        accept(jumping, "a")
        accept(steady, "a")
        until(partial(same, steady, jumping), "the same", within=SOON_SECONDS)
        assert states(jumping) == states(steady) == (True, False)


def clock_of(server: NatsServer) -> float:
    """Return the time that a server says."""
    said = requests.get(f"{server.monitoring}/varz", timeout=10).json()["now"]
    return datetime.fromisoformat(said).timestamp()


@pytest.mark.release("a second cluster; clocks of registries are in the test above")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs the system calls of x86-64")
def test_servers_whose_clocks_jump_make_no_node_stale_and_change_no_order(
    tmp_path: Path, free_port: FreePort
) -> None:
    servers = NatsCluster(folder=tmp_path / "nats", free_port=free_port, size=3)
    clocks = {server: ServerClock(tmp_path / server.name) for server in servers.servers}
    for server, clock in clocks.items():
        server.prefix = clock.prefix
    shared = {"store": servers.url(), "nats": servers.settings()}
    settings = merged(shared, {"nodes": {"stale_after_seconds": 60}})
    with servers, Daemons(folder=tmp_path / "daemons", free_port=free_port) as daemons:
        one, other = [daemons.registry(**settings) for _ in range(2)]
        accept(one, "a")
        for number, (server, seconds) in enumerate(product(clocks, (HOUR, -2 * HOUR, 0))):
            clocks[server].set_by(seconds)
            assert abs(clock_of(server) - time.time() - seconds) < HOUR / 2
            for registry in (one, other):
                accept(registry, "a", f"{number} {registry.base_url}")
            until(partial(same, one, other), "the same", within=SOON_SECONDS)
            assert f"{number} {other.base_url}" in one.ask("GET", "/nodes/a").text
            assert states(one) == states(other) == (True, False)
        other.terminate()
        other.start()
        assert same(one, other)
