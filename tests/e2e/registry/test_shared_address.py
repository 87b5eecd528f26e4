"""Several registries of one host that share an address, and a store in NATS."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real
SOON_SECONDS = 20.0
CONNECTIONS = 40


@pytest.fixture
def servers(tmp_path: Path, free_port: FreePort) -> Iterator[NatsCluster]:
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as cluster:
        yield cluster


@pytest.fixture
def shared(free_port: FreePort) -> str:
    """Return the address that the registries share."""
    return f"127.0.0.1:{free_port()}"


def settings(servers: NatsCluster, shared: str) -> dict[str, Any]:
    return {"store": servers.url(), "nats": servers.settings(), "shared_listen": shared}


def answers(shared: str, registry: Daemon) -> Counter[int]:
    """Return the statuses of as many answers, each over a connection of its own.

    Each registry has a key of its own: the others answer this one's with 401.
    """
    headers = {"Authorization": registry.key}
    return Counter(
        requests.get(f"http://{shared}/nodes", headers=headers, timeout=30).status_code
        for _ in range(CONNECTIONS)
    )


def is_at(shared: str, registry: Daemon) -> bool:
    """Return whether a registry listens at the address: first of all, it does at its own."""
    with suppress(requests.ConnectionError):
        return answers(shared, registry)[200] > 0
    return False


def test_each_registry_gets_a_part_of_the_connections_and_the_last_one_all_of_them(
    daemons: Daemons, servers: NatsCluster, shared: str
) -> None:
    first, second = (daemons.registry(**settings(servers, shared)) for _ in range(2))
    assert second.ask("POST", "/nodes/one", json={"labels": [], "kv": {}}).ok
    until(lambda: "one" in first.ask("GET", "/nodes").text, "the node", within=SOON_SECONDS)
    until(lambda: len(answers(shared, first)) > 1, "both at the address", within=SOON_SECONDS)
    assert set(answers(shared, first)) <= {200, 401}

    second.kill()

    assert answers(shared, first) == {200: CONNECTIONS}


def test_a_registry_that_has_not_loaded_leaves_the_address_to_others(
    tmp_path: Path, free_port: FreePort, servers: NatsCluster, shared: str
) -> None:
    ports: list[int] = []

    def noted_port() -> int:
        ports.append(free_port())
        return ports[-1]

    def is_loading() -> bool:
        url = f"http://127.0.0.1:{ports[-1]}/healthz"
        with suppress(requests.ConnectionError):
            return requests.get(url, timeout=30).status_code == 503
        return False

    with (
        Daemons(folder=tmp_path / "daemons", free_port=noted_port) as daemons,
        ThreadPoolExecutor(1) as thread,
    ):
        first = daemons.registry(**settings(servers, shared))
        until(lambda: is_at(shared, first), "the first one", within=SOON_SECONDS)
        servers.servers[0].stop()
        try:
            second = thread.submit(daemons.registry, **settings(servers, shared))
            until(is_loading, "the second one", within=SOON_SECONDS)

            assert answers(shared, first) == {200: CONNECTIONS}
        finally:
            servers.servers[0].resume()
        second.result()
        until(lambda: answers(shared, first)[401], "both at the address", within=SOON_SECONDS)


def test_nobody_listens_on_the_own_address_of_another(
    daemons: Daemons, servers: NatsCluster, shared: str
) -> None:
    first = daemons.registry(**settings(servers, shared))

    def start_and_end() -> None:
        second = daemons.registry(**settings(servers, first.base_url.removeprefix("http://")))
        # It may have answered at its own address before it listened at the shared one.
        assert second.wait() == 0, second.log()

    with pytest.raises(AssertionError, match="in use, by a process that does not share it"):
        start_and_end()
