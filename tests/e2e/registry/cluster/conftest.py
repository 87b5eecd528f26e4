"""Three NATS servers and three registries for the tests of a module, and more for a test alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort, merged
from tests.support.e2e.group_agent import GROUP_KEYS
from tests.support.registry.cut_off import ServerCables
from tests.support.registry.nats.servers import NatsCluster

NUMBERS = count()
EMPTY_SECONDS = 180.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a cluster of three NATS servers, in the state in which a test has left it."""
    folder = tmp_path_factory.mktemp("cluster") / "nats"
    with NatsCluster(folder=folder, free_port=free_port, size=3) as running:
        yield running


@pytest.fixture
def servers(cluster: NatsCluster) -> NatsCluster:
    """Return a cluster of three NATS servers that work."""
    cluster.mend()
    return cluster


@pytest.fixture
def bucket() -> str:
    """Return the name of a bucket that no other test has."""
    return f"rollcall-{next(NUMBERS)}"


@pytest.fixture
def start_registry(servers: NatsCluster, bucket: str, daemons: Daemons) -> Callable[..., Daemon]:
    """Return what starts a registry on the test's own bucket, with settings over the usual ones."""

    def start(**settings: Any) -> Daemon:
        shared = {"store": servers.url(bucket), "nats": servers.settings()}
        return daemons.registry(**merged(shared, settings))

    return start


@pytest.fixture(scope="module")
def cables(cluster: NatsCluster, free_port: FreePort) -> Iterator[list[ServerCables]]:
    """Yield the ways of three registries to the servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(ServerCables(cluster, free_port)) for _ in range(3)]


@pytest.fixture(scope="module")
def fleet(
    cluster: NatsCluster,
    cables: list[ServerCables],
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
) -> Iterator[list[Daemon]]:
    """Yield three registries on one bucket, in the state in which a test has left them."""
    folder, nats = tmp_path_factory.mktemp("fleet"), cluster.settings()
    with Daemons(folder=folder, free_port=free_port) as daemons:
        yield [daemons.registry(store=one.url(), nats=nats, keys=GROUP_KEYS) for one in cables]


@pytest.fixture
def registries(
    servers: NatsCluster, fleet: list[Daemon], cables: list[ServerCables]
) -> list[Daemon]:
    """Return three registries that work, on the bucket of the servers' URL, without nodes."""
    del servers  # they work
    for ways in cables:
        ways.mend()
    for registry in fleet:
        if registry.is_running:
            registry.resume()
        else:
            registry.start()
    until(lambda: all(has_no_nodes(one) for one in fleet), "no nodes", within=EMPTY_SECONDS)
    return fleet


def has_no_nodes(registry: Daemon) -> bool:
    """Delete all nodes of a registry; return whether there were none."""
    answer = registry.ask("GET", "/nodes")
    assert answer.status_code == 200, answer.text
    hostnames = [node["hostname"] for node in answer.json()]
    for hostname in hostnames:
        registry.ask("DELETE", f"/nodes/{hostname}")
    return not hostnames
