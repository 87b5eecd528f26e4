"""What a bucket has lost is noticed, and what others wrote meanwhile is taken for new."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from registry.store.nats.bucket import (
    BucketAddress,
    BucketState,
    ask_jetstream,
    find_bucket,
    open_bucket,
)
from registry.store.nats.delivery import Message
from registry.store.nats.format import HeardNodes, encode, node_value
from registry.store.nats.link import Link, NoConnection, connected
from registry.store.nats.losses import BELIEVE_LOSS_AFTER_SECONDS, Resumption, Verification
from registry.store.options import NatsLogin
from registry.store.protocol import Row
from tests.support.daemons import FreePort
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.nats.buckets import Parts, backend_at
from tests.support.registry.nats.servers import NatsCluster, NatsServer
from tests.support.registry.stores.conformance import node
from tests.support.registry.stores.shared_conformance import OpenedStore, numbered
from tests.support.registry.stores.sqlite_store import Batches
from tests.support.waiting import async_until

NEVER_DELIVERED = 3
LAST = 5
STATE = BucketState(
    created="",
    first=1,
    last=LAST,
    subjects=1,
    consumers=1,
    servers=("n1",),
    replicas=1,
    cluster="",
)
LATER = 1_000_000.0


def bucket(last: int) -> BucketState:
    """Return what a bucket is like, which is the same one each time."""
    return BucketState("2026-01-01T00:00:00Z", 1, last, 1, 0, (), 1, "")


def stored(sequence: int, hostname: str, number: int) -> Message:
    """Return a change by a registry that has run for less long than this one."""
    value = node_value(node(hostname, numbered(number)), by="other-1", uptime=1.0)
    return Message(sequence, f"node.{hostname}", value, {}, 0)


def heard(sequence: int) -> Message:
    value = encode(HeardNodes(by="other-9", uptime=9.0, heard=[], seen=0))
    return Message(sequence, "heard.other.0.1", value, {}, 0)


async def lose_end(resumption: Resumption, last: int) -> None:
    """Connect again and again, until it is believed that this is the bucket's last sequence."""
    with pytest.raises(NoConnection, match="lacks what the bucket had"):
        resumption.resume(bucket(last))
    await asyncio.sleep(BELIEVE_LOSS_AFTER_SECONDS)
    resumption.resume(bucket(last))


@in_virtual_time
@pytest.mark.parametrize(
    ("delivered", "last"),
    [
        pytest.param(4, 3, id="before what was delivered again"),
        pytest.param(4, 5, id="behind what was delivered again"),
    ],
)
async def test_what_others_write_after_a_second_loss_is_new_though_the_first_was_later(
    delivered: int, last: int
) -> None:
    parts = Parts("b")
    resumption = Resumption("b", parts.applier)
    resumption.resume(bucket(0))
    for message in (stored(1, "a", 1), stored(7, "a", 7), heard(8)):
        parts.applier.receive(message)
    await lose_end(resumption, 6)
    parts.applier.receive(heard(delivered))

    await lose_end(resumption, last)
    parts.applier.receive(stored(6, "a", 6))

    assert [row.document for row in parts.memory.nodes.values()] == [numbered(6)]


@in_virtual_time
async def test_what_was_there_before_a_loss_is_old_though_the_connection_is_interrupted() -> None:
    parts = Parts("b")
    resumption = Resumption("b", parts.applier)
    resumption.resume(bucket(0))
    for message in (stored(1, "a", 1), stored(7, "a", 7), heard(8)):
        parts.applier.receive(message)
    await lose_end(resumption, 6)
    parts.applier.receive(heard(4))

    parts.applier.missed = frozenset({"b"})
    resumption.resume(bucket(9))
    parts.applier.receive(stored(6, "a", 6))

    assert [row.document for row in parts.memory.nodes.values()] == [numbered(7)]


@in_virtual_time
async def test_what_was_there_before_a_loss_is_old_though_a_server_lags_for_a_moment() -> None:
    parts = Parts("b")
    resumption = Resumption("b", parts.applier)
    resumption.resume(bucket(0))
    for message in (stored(1, "a", 1), stored(7, "a", 7), heard(8)):
        parts.applier.receive(message)
    await lose_end(resumption, 6)
    parts.applier.receive(heard(4))

    with pytest.raises(NoConnection, match="lacks what the bucket had"):
        resumption.resume(bucket(5))
    resumption.resume(bucket(6))
    parts.applier.receive(stored(6, "a", 6))

    assert [row.document for row in parts.memory.nodes.values()] == [numbered(7)]


class Subscribed(Subscription):
    """A subscription without a connection."""

    async def unsubscribe(self, limit: int = 0) -> None:
        """End it."""


class Holding(Client):
    """A connection to a server whose bucket holds one node; it counts the comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.comparisons = 0
        self._take: Any = None

    async def subscribe(self, *_: object, cb: Any = None, **__: object) -> Subscription:
        """Take what is delivered."""
        self._take = cb
        return Subscribed(self)

    async def request(self, subject: str, *_: object, **__: object) -> Msg:
        """Make a consumer, which delivers at once, or remove it."""
        if ".CONSUMER.CREATE." in subject:
            self.comparisons += 1
            reply = f"$JS.ACK.KV_b.c.1.{NEVER_DELIVERED}.1.0.0"
            await self._take(Msg(self, subject="$KV.b.node.a", reply=reply))
        return Msg(self, data=msgspec.json.encode({"num_pending": 1}))


def verification_of(parts: Parts, client: Client) -> Verification:
    link = Link()
    link.client = client
    return Verification(link, "b", parts.applier)


async def test_the_first_look_of_a_connection_finds_what_was_missed_before_it() -> None:
    parts = Parts("b")
    parts.revisions.record("a", 1, stored=True)
    parts.revisions.position = LAST
    verification = verification_of(parts, Holding())

    with pytest.raises(NoConnection, match="changes that it has not delivered: a"):
        await verification.look(STATE)

    assert parts.applier.missed == {"a"}


async def test_a_connection_that_goes_on_compares_once() -> None:
    parts, client = Parts("b"), Holding()
    parts.revisions.record("a", NEVER_DELIVERED, stored=True)
    parts.revisions.position = LAST
    verification = verification_of(parts, client)

    await verification.look(STATE)
    await verification.look(STATE)

    assert client.comparisons == 1
    assert not parts.applier.missed


async def look(verification: Verification, link: Link, bucket: str) -> None:
    state = await find_bucket(link, bucket)
    assert state is not None
    await verification.look(state)


@pytest.mark.real
async def test_what_was_delivered_since_the_look_before_is_not_taken_as_lost(
    server: NatsCluster,
) -> None:
    place = BucketAddress.from_url(server.url("lagging"), server.options())
    assert place is not None
    async with connected(place.servers, NatsLogin()) as link:
        await open_bucket(link, place)
        await link.client.request("$KV.lagging.node.a", b"{}")
        parts = Parts("lagging")
        verification = Verification(link, "lagging", parts.applier)
        for sequence, name in enumerate(("a", "b"), 1):  # the server does not have b yet
            parts.revisions.record(name, sequence, stored=True)
        parts.revisions.position = 2

        await look(verification, link, "lagging")
        assert parts.revisions.is_stored("b")

        await look(verification, link, "lagging")
        assert parts.revisions.is_stored("a")
        assert not parts.revisions.is_stored("b")


@pytest.mark.real
async def test_a_purge_is_noticed_however_many_other_keys_there_are(server: NatsCluster) -> None:
    place = BucketAddress.from_url(server.url("purged"), server.options())
    assert place is not None
    async with connected(place.servers, NatsLogin()) as link:
        await open_bucket(link, place)
        await link.client.request("$KV.purged.node.a", b"{}")
        parts = Parts("purged")
        parts.revisions.record("a", 1, stored=True)
        parts.revisions.position = 1
        verification = Verification(link, "purged", parts.applier)
        await look(verification, link, "purged")
        assert parts.revisions.is_stored("a")

        await ask_jetstream(link, "STREAM.PURGE.KV_purged")
        for number in range(5):
            await link.client.request(f"$KV.purged.heard.other.0.{number}", b"{}")
        await look(verification, link, "purged")

        assert not parts.revisions.is_stored("a")


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
            state = await find_bucket(link, "rollcall")
            return state is not None and state.last >= sequence

        await async_until(is_reached)


@pytest.mark.real
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


@pytest.mark.real
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
