"""Servers that are away or have lost what they had: registries go on from memory."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event

import pytest
from nats.aio.client import Client

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import registry_statuses
from tests.support.e2e.group_agent import GroupAgent
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real
SOON_SECONDS = 180.0
STALE_SECONDS = 6
# A slow machine takes some seconds until it notices an outage, which is to last longer than this.
SLOW_STALE_SECONDS = 10
OUTAGE_SECONDS = 14
HEARTBEAT_SECONDS = 1.0
HOSTS = [f"h{number}" for number in range(20)]
STORE_AGE = re.compile(r"^rollcall_registry_store_age_seconds (.*)$", re.MULTILINE)


def post(registry: Daemon, hostname: str) -> bool:
    """Send a heartbeat of a host, and return whether it was accepted."""
    body = {"labels": ["prometheus:web"], "kv": {"agent.id": hostname}}
    return registry.ask("POST", f"/nodes/{hostname}", json=body).status_code == 200


def post_all(registry: Daemon, hostnames: Sequence[str] = HOSTS) -> bool:
    """Send a heartbeat of each host, and return whether all were accepted."""
    return all(post(registry, hostname) for hostname in hostnames)


def shows_all(registry: Daemon) -> bool:
    """Return whether all hosts are nodes, and targets."""
    nodes = registry.ask("GET", "/nodes")
    targets = registry.ask("GET", "/prometheus/web?format=http_sd")
    assert (nodes.status_code, targets.status_code) == (200, 200), (nodes.text, targets.text)
    return len(nodes.json()) == len(targets.json()) == len(HOSTS)


def all_show_all(registries: Sequence[Daemon], holds: Callable[[Daemon], bool]) -> bool:
    """Return whether something holds for each registry; look at the nodes and targets of each."""
    assert all(shows_all(registry) for registry in registries)
    held = [holds(registry) for registry in registries]
    return all(held)


def states(registry: Daemon) -> dict[str, float]:
    text = registry.ask("GET", "/metrics").text
    found = re.findall(r'^rollcall_registry_nodes{state="(.*)"} (.*)$', text, re.MULTILINE)
    return {state: float(count) for state, count in found}


def store_age(registry: Daemon) -> float:
    """Return how old the answers of a registry are, as its metric says."""
    (age,) = STORE_AGE.findall(registry.ask("GET", "/metrics").text)
    return float(age)


def is_old(registry: Daemon) -> bool:
    return store_age(registry) > OUTAGE_SECONDS


def recovered(registries: Sequence[Daemon]) -> bool:
    return all(one.ask("GET", "/healthz").status_code == 200 for one in registries)


def is_current(registry: Daemon) -> bool:
    """Return whether answers are no older than the store."""
    headers = registry.ask("GET", "/nodes").headers
    return store_age(registry) == 0 and "Rollcall-Store-Age" not in headers


def is_unavailable(registry: Daemon) -> bool:
    """Return whether a heartbeat is rejected, as one is that the store cannot keep."""
    answer = registry.ask("POST", "/nodes/new", json={"labels": [], "kv": {}})
    return answer.status_code == 503


def was_reported_503(agent: Daemon, registries: Sequence[Daemon]) -> bool:
    """Return whether each registry answered the agent's last heartbeat to it with 503."""
    statuses = registry_statuses(agent)
    reasons = [statuses[registry.base_url]["reason"] or "" for registry in registries]
    return all(reason.startswith("503: ") for reason in reasons)


@contextmanager
def reporting(registries: Sequence[Daemon]) -> Iterator[None]:
    """Let all hosts report while the context is open, each to the first registry that accepts."""
    stop = Event()

    def report() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            any(post_all(registry) for registry in registries)

    with ThreadPoolExecutor() as pool:
        reports = pool.submit(report)
        try:
            yield
        finally:
            stop.set()
        reports.result()


@contextmanager
def frozen(daemon: Daemon) -> Iterator[None]:
    """Freeze a daemon while the context is open."""
    daemon.freeze()
    try:
        yield
    finally:
        daemon.resume()


async def ask_api(servers: NatsCluster, subject: str) -> None:
    """Send a request to the API of JetStream, as an operator does by hand."""
    client = Client()
    await client.connect([f"nats://{server.address}" for server in servers.servers])
    reply = await client.request(f"$JS.API.{subject}", b"", timeout=10)
    await client.close()
    assert b'"error"' not in reply.data, reply.data


def test_without_a_quorum_reads_go_on_and_say_how_old_they_are(
    servers: NatsCluster, start_registry: Callable[..., Daemon]
) -> None:
    registries = [start_registry(nodes={"stale_after_seconds": SLOW_STALE_SECONDS}) for _ in "123"]
    fill(registries)
    # The store is back for the first registry before it is for the last. Hosts that were silent
    # in between would be stale, and rightly so.
    with reporting(registries):
        until(partial(is_current, registries[0]), "no age", within=SOON_SECONDS)

        for server in servers.servers[:2]:
            server.kill()
        until(partial(all_show_all, registries, is_old), "old answers", within=SOON_SECONDS)
        for registry in registries:
            says_how_old_it_is(registry)

        for server in servers.servers[:2]:
            server.begin()
        returned: set[Daemon] = set()

        def has_returned(registry: Daemon) -> bool:
            if registry not in returned and recovered([registry]):
                assert states(registry)["stale"] == 0
                returned.add(registry)
            return registry in returned

        until(partial(all_show_all, registries, has_returned), "recovery", within=SOON_SECONDS)
        until(partial(all_show_all, registries, is_current), "no age", within=SOON_SECONDS)
    until(partial(post, registries[1], "new"), "a change", within=SOON_SECONDS)


def says_how_old_it_is(registry: Daemon) -> None:
    """Look at what a registry answers while the servers have no quorum."""
    assert int(registry.ask("GET", "/nodes").headers["Rollcall-Store-Age"]) > STALE_SECONDS
    assert "Rollcall-Store-Age" in registry.ask("GET", "/prometheus/web").headers
    assert registry.ask("GET", f"/nodes/{HOSTS[0]}/explain").json()["age_seconds"] > STALE_SECONDS
    rejected = registry.ask("POST", "/nodes/new", json={"labels": [], "kv": {}})
    assert rejected.status_code == 503
    assert int(rejected.headers["Retry-After"]) > 0
    assert "NATS" in rejected.json()["message"]
    assert states(registry)["stale"] == 0  # that time counts against no node


@pytest.mark.release("ages that another registry reports are in test_cut_off.py")
def test_a_registry_that_was_frozen_knows_who_reported_elsewhere(
    start_registry: Callable[..., Daemon],
) -> None:
    quick = {"nodes": {"stale_after_seconds": STALE_SECONDS}}
    here, elsewhere = start_registry(**quick), start_registry(**quick)
    fill([here, elsewhere])
    here.freeze()

    def silent_is_stale() -> bool:
        return post_all(elsewhere, HOSTS[1:]) and states(elsewhere)["stale"] == 1

    until(silent_is_stale, "one is stale", within=SOON_SECONDS)
    here.resume()

    def same_here() -> bool:
        expected = {"fresh": len(HOSTS) - 1, "stale": 1}
        return post_all(elsewhere, HOSTS[1:]) and recovered([here]) and states(here) == expected

    until(same_here, "the same here", within=SOON_SECONDS)


@pytest.mark.release("failover on 503 is in tests/agent/reporting/failover, too")
def test_an_agent_leaves_a_registry_that_is_cut_off_and_stays_while_all_answer_503(
    servers: NatsCluster,
    registries: list[Daemon],
    cables: list[ServerCables],
    daemons: Daemons,
) -> None:
    host = GroupAgent(daemons, registries)
    first = host.used

    with frozen(host.agent):
        cables[registries.index(first)].cut()
        until(partial(is_unavailable, first), "503", within=SOON_SECONDS)
    others = [each for each in registries if each is not first]
    until(lambda: host.used is not first, "the move", within=SOON_SECONDS)
    second = host.used
    (line,) = host.moves()
    assert f"from={first.base_url}" in line
    assert "kind=busy" in line
    assert "503: " in line

    with frozen(host.agent):
        for server in servers.servers[:2]:
            server.kill()
        for registry in others:
            until(partial(is_unavailable, registry), "503", within=SOON_SECONDS)
    until(partial(was_reported_503, host.agent, registries), "503 of all", within=SOON_SECONDS)
    assert host.used is second
    assert len(host.moves()) == 1
    cables[registries.index(first)].mend()
    servers.mend()
    host.until_reported(
        "site:third", *registries, within=SOON_SECONDS
    )  # by whichever is back first


def test_a_cluster_that_is_lost_and_starts_empty_heals_from_memory(
    servers: NatsCluster, registries: list[Daemon], start_registry: Callable[..., Daemon]
) -> None:
    fill(registries)
    for server in servers.servers:
        server.kill()
        server.lose_data()
    for server in servers.servers:
        server.begin()

    start = partial(start_registry, store=servers.url())
    until(partial(is_healed, registries, start), "healing", within=SOON_SECONDS)


@pytest.mark.release("servers that lose all of their data are in the test above")
@pytest.mark.parametrize("request_", ["PURGE", "DELETE"])
async def test_a_bucket_that_is_purged_or_deleted_by_hand_is_filled_again(
    request_: str,
    servers: NatsCluster,
    registries: list[Daemon],
    start_registry: Callable[..., Daemon],
) -> None:
    await asyncio.to_thread(fill, registries)

    await ask_api(servers, f"STREAM.{request_}.KV_rollcall")

    healed = partial(is_healed, registries, partial(start_registry, store=servers.url()))
    await asyncio.to_thread(until, healed, "healing", within=SOON_SECONDS)


def fill(registries: Sequence[Daemon]) -> None:
    until(partial(post_all, registries[0]), "all accepted", within=SOON_SECONDS)
    for registry in registries:
        until(partial(shows_all, registry), "all nodes", within=SOON_SECONDS)


def is_healed(registries: Sequence[Daemon], start_registry: Callable[..., Daemon]) -> bool:
    """Return whether a registry that starts now reads all nodes; the hosts report meanwhile.

    Targets never vanish from the registries that run.
    """
    assert all(shows_all(registry) for registry in registries)
    reported = [post_all(registry) for registry in registries]
    if not all(reported) or not recovered(registries):
        return False
    return len(start_and_list(start_registry)) == len(HOSTS)


def start_and_list(start_registry: Callable[..., Daemon]) -> list[str]:
    """Return what a registry that starts now reads from the bucket."""
    registry = start_registry()
    names = [node["hostname"] for node in registry.ask("GET", "/nodes").json()]
    registry.terminate()
    return names
