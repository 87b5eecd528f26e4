"""A bucket that has lost its end, and in which another registry has written a new one."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from registry.store.nats.bucket import JetStreamApi, find_bucket
from registry.store.nats.format import node_value
from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from registry.store.protocol import Row
from tests.support.daemons import FreePort
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster, NatsServer
from tests.support.registry.stores.conformance import node
from tests.support.registry.stores.shared_conformance import OpenedStore, numbered
from tests.support.registry.stores.sqlite_store import Batches
from tests.support.waiting import async_until

pytestmark = pytest.mark.real
LATER = 1_000_000.0


def restart(server: NatsServer, data: Path | None = None) -> None:
    """Kill a server and start it, with other data if they are given."""
    server.kill()
    if data is not None:
        server.lose_data()
        shutil.copytree(data, server.store, dirs_exist_ok=True)
    server.begin()
    server.wait()


async def write_up_to(server: NatsServer, row: Row, sequence: int, uptime: float = LATER) -> None:
    """Write a node as another registry does, then other messages up to a sequence at least."""
    async with connected([f"nats://{server.address}"], NatsLogin()) as link:
        value = node_value(row, by="other-1", uptime=uptime)
        await link.client.request(f"$KV.rollcall.node.{row.hostname}", value)

        async def is_reached() -> bool:
            await link.client.request("$KV.rollcall.heard.other.0.1", b"{}")
            state = await find_bucket(JetStreamApi(link), "rollcall")
            return state is not None and state.last >= sequence

        await async_until(is_reached)


async def test_what_others_wrote_over_the_lost_end_of_a_bucket_is_read(
    tmp_path: Path, free_port: FreePort
) -> None:
    with NatsCluster(folder=tmp_path / "n", free_port=free_port) as servers:
        [server] = servers.servers
        async with peer_ahead_of(servers, tmp_path / "earlier") as peer:
            before = peer.store.position
            assert before is not None

            restart(server, tmp_path / "earlier")
            await async_until(partial(has_problem, peer, "lacks what the bucket had"))
            # By one that has run for less long than this registry: by less time than `a` says.
            await write_up_to(server, node("a", numbered(2)), 0, uptime=0.0)
            await write_up_to(server, node("c"), before.sequence)

            await async_until(partial(has_read, peer, "c"))
            assert peer.store.position is not None
            assert peer.store.position.order != before.order
            assert "b19" in peer.memory.nodes
            assert peer.documents()["a"] == numbered(2)


async def test_what_others_wrote_over_the_lost_end_while_a_registry_was_cut_off_is_found(
    tmp_path: Path, free_port: FreePort
) -> None:
    with (
        NatsCluster(folder=tmp_path / "n", free_port=free_port) as servers,
        NatsCluster(folder=tmp_path / "elsewhere", free_port=free_port) as others,
    ):
        [server], [elsewhere] = servers.servers, others.servers
        async with peer_ahead_of(servers, tmp_path / "earlier") as peer:
            before = peer.store.position
            assert before is not None

            server.kill()
            restart(elsewhere, tmp_path / "earlier")
            await write_up_to(elsewhere, node("a", numbered(2)), 0, uptime=0.0)
            await write_up_to(elsewhere, node("c"), before.sequence)
            elsewhere.kill()
            server.lose_data()
            shutil.copytree(elsewhere.store, server.store, dirs_exist_ok=True)
            server.begin()
            server.wait()

            await async_until(partial(has_read, peer, "c"))
            assert peer.store.position is not None
            assert peer.store.position.order != before.order
            assert "b19" in peer.memory.nodes
            assert peer.documents()["a"] == numbered(2)


@asynccontextmanager
async def peer_ahead_of(servers: NatsCluster, earlier: Path) -> AsyncIterator[OpenedStore]:
    """Yield a registry's store with nodes, only the first of which the copy of the bucket has."""
    [server] = servers.servers
    backend = backend_at(servers.url(), servers.options())
    peer = OpenedStore(lambda clock: backend.open(clock=clock, observe=Batches().observe))
    await peer.open()
    try:
        await peer.put(node("a"))
        server.kill()
        shutil.copytree(server.store, earlier)
        server.begin()
        server.wait()
        for name in [f"b{number}" for number in range(20)]:
            await peer.put(node(name))
        yield peer
    finally:
        await peer.store.close()


async def has_read(peer: OpenedStore, hostname: str) -> bool:
    """Return whether a node is in memory."""
    return hostname in peer.memory.nodes


async def has_problem(peer: OpenedStore, text: str) -> bool:
    """Return whether the store names a problem."""
    return text in peer.store.health.problem
