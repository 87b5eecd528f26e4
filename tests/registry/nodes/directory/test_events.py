"""The stream of change: what is published, when, in which order, and to whom."""

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from registry.errors import StoreUnavailable
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange, NodeChanges, Source
from registry.nodes.directory import KnownNode
from registry.store.protocol import Row
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

DAY = 86_400
DOCUMENT = b'{"labels":[],"kv":{}}'
OPERATOR = Source("ops", "127.0.0.1")


class Follower:
    """A subscriber that notes what it is told, and what the directory and the store know then."""

    def __init__(self, registry: InProcessRegistry) -> None:
        self._registry = registry
        self.received: list[tuple[ChangeKind, str, Source]] = []
        self.known: list[tuple[bool, bool]] = []
        registry.components.context.changes.subscribe(self.note)

    def note(self, change: NodeChange) -> None:
        hostname = change.node.hostname
        self.received.append((change.kind, hostname, change.source))
        listed = self._registry.components.context.directory.entries.get(hostname) is not None
        self.known.append((listed, hostname in self._registry.store.rows))


def entry(hostname: str) -> KnownNode:
    return KnownNode(Row(hostname, DOCUMENT, 0, "192.0.2.1"), heard=0.0)


async def test_each_change_is_published_once_right_after_it_took_effect_and_is_durable(
    registry: InProcessRegistry,
) -> None:
    follower = Follower(registry)

    await registry.post("web-1", ["a"])
    await registry.post("web-1", ["b"])
    await registry.ask("DELETE", "/nodes/web-1")

    assert follower.received == [
        ("added", "web-1", OPERATOR),
        ("changed", "web-1", OPERATOR),
        ("deleted", "web-1", OPERATOR),
    ]
    assert follower.known == [(True, True), (True, True), (False, False)]


@pytest.mark.slow
async def test_a_subscriber_is_told_before_the_client_gets_its_answer(
    registry: InProcessRegistry,
) -> None:
    order: list[str] = []
    registry.components.context.changes.subscribe(lambda change: order.append(change.kind))

    await registry.post("web-1")
    order.append("answered")

    assert order == ["added", "answered"]


@pytest.mark.slow
async def test_heartbeats_that_change_nothing_and_refused_ones_are_not_published(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"], {"agent.id": "first"})
    follower = Follower(registry)

    assert (await registry.post("web-1", ["a"], {"agent.id": "first"})).status == 200
    assert (await registry.post("web-1", ["a"], {"agent.id": "second"})).status == 409
    registry.store.failure = StoreUnavailable("broken")
    assert (await registry.post("web-1", ["b"], {"agent.id": "first"})).status == 503

    assert follower.received == []


@pytest.mark.slow
async def test_an_expiry_is_published_as_the_registrys_own_change(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    follower = Follower(registry)
    registry.clock.pass_seconds(DAY)

    assert await registry.get("/nodes") == []

    assert follower.received == [("stale", "web-1", REGISTRY), ("expired", "web-1", REGISTRY)]


async def test_every_node_of_the_store_is_published_when_it_is_loaded() -> None:
    store = MemoryStore([Row(name, DOCUMENT, 0, "192.0.2.1") for name in ("a", "b")])
    async with in_process_registry(store=store, load=False) as registry:
        follower = Follower(registry)

        await registry.components.load()

        assert follower.received == [("loaded", "a", REGISTRY), ("loaded", "b", REGISTRY)]
        assert registry.audit == []


@pytest.mark.slow
async def test_a_deletion_that_fails_leaves_the_node_as_it_was(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1")
    follower = Follower(registry)
    registry.store.failure = StoreUnavailable("broken")
    assert (await registry.ask("DELETE", "/nodes/web-1")).status == 503
    registry.store.failure = None
    await registry.components.nodes.writes.flush()

    assert (await registry.post("web-1")).status == 200

    assert follower.received == []  # the heartbeat changed nothing
    assert (await registry.counts())["unchanged"] == 1
    assert (await registry.ask("DELETE", "/nodes/web-1")).status == 200


@pytest.mark.slow
async def test_a_deleted_node_that_comes_back_is_deleted_and_expires_as_any_other(
    registry: InProcessRegistry,
) -> None:
    follower = Follower(registry)
    for _ in range(2):
        await asyncio.gather(registry.post("web-1"), registry.post("web-1"), registry.post("web-2"))
        assert (await registry.ask("DELETE", "/nodes/web-1")).status == 200
    await registry.post("web-1")
    registry.clock.pass_seconds(DAY)

    assert await registry.get("/nodes") == []

    kinds = [kind for kind, hostname, _ in follower.received if hostname == "web-1"]
    assert [kind for kind in kinds if kind != "changed"] == [
        *["added", "deleted"] * 2,
        "added",
        "stale",
        "expired",
    ]


def test_subscribers_are_called_in_their_order_and_only_with_the_kinds_they_asked_for() -> None:
    events = NodeChanges(structlog.get_logger())
    told: list[str] = []
    events.subscribe(lambda change: told.append(f"first {change.kind}"))
    events.subscribe(lambda change: told.append(f"second {change.kind}"), [ChangeKind.DELETED])

    events.publish(NodeChange(ChangeKind.ADDED, entry("a"), OPERATOR))
    events.publish(NodeChange(ChangeKind.DELETED, entry("a"), OPERATOR))

    assert told == ["first added", "first deleted", "second deleted"]


def test_a_subscriber_that_fails_is_logged_and_the_others_are_told() -> None:
    events = NodeChanges(structlog.get_logger())
    told: list[str] = []

    def fail(_change: NodeChange) -> None:
        raise KeyError("unforeseen")

    events.subscribe(fail)
    events.subscribe(lambda change: told.append(change.node.hostname))

    with capture_logs() as lines:
        events.publish(NodeChange(ChangeKind.ADDED, entry("a"), OPERATOR))

    assert told == ["a"]
    assert [(line["event"], line["change"], line["node"]) for line in lines] == [
        ("defect", "added", "a")
    ]
