"""Each change is published once, in order, and is in the log with its author."""

import asyncio
import re
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from registry.errors import StoreUnavailable
from registry.nodes.changes import (
    MAX_SINGLE_LINES,
    REGISTRY,
    AuditLog,
    ChangeKind,
    NodeChange,
    NodeChanges,
    Source,
)
from registry.nodes.directory import KnownNode
from registry.store.protocol import Row
from tests.support.httpd.log_lines import LogLines
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

DAY = 86_400
DOCUMENT = b'{"labels":[],"kv":{}}'
OPERATOR = Source("ops", "127.0.0.1")


class Follower:
    """A subscriber that notes its changes, and what the directory and the store know then."""

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
async def test_a_subscriber_is_reported_before_the_client_gets_its_answer(
    registry: InProcessRegistry,
) -> None:
    order: list[str] = []
    registry.components.context.changes.subscribe(lambda change: order.append(change.kind))

    await registry.post("web-1")
    order.append("answered")

    assert order == ["added", "answered"]


@pytest.mark.slow
async def test_heartbeats_that_change_nothing_and_rejected_ones_are_not_published(
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
    reported: list[str] = []
    events.subscribe(lambda change: reported.append(f"first {change.kind}"))
    events.subscribe(lambda change: reported.append(f"second {change.kind}"), [ChangeKind.DELETED])

    events.publish(NodeChange(ChangeKind.ADDED, entry("a"), OPERATOR))
    events.publish(NodeChange(ChangeKind.DELETED, entry("a"), OPERATOR))

    assert reported == ["first added", "first deleted", "second deleted"]


def test_a_subscriber_that_fails_is_logged_and_the_others_are_reported() -> None:
    events = NodeChanges(structlog.get_logger())
    reported: list[str] = []

    def fail(_change: NodeChange) -> None:
        raise KeyError("unforeseen")

    events.subscribe(fail)
    events.subscribe(lambda change: reported.append(change.node.hostname))

    with capture_logs() as lines:
        events.publish(NodeChange(ChangeKind.ADDED, entry("a"), OPERATOR))

    assert reported == ["a"]
    assert [(line["event"], line["change"], line["node"]) for line in lines] == [
        ("defect", "added", "a")
    ]


REPOSITORY = Path(__file__).parents[3]


class Audit:
    """An audit log, with the lines that it has written."""

    def __init__(self) -> None:
        self.lines = LogLines()
        self.log = AuditLog(self.lines.logger())

    def record(self, *changes: tuple[ChangeKind, str, Source]) -> None:
        for kind, hostname, source in changes:
            node = KnownNode(Row(hostname, b'{"labels":[],"kv":{}}', 0, source.address), heard=0.0)
            self.log.record(NodeChange(kind, node, source))

    def names(self) -> list[str]:
        """Return the nodes that the lines name, in their order."""
        return [
            name
            for line in self.lines
            for name in ([line["node"]] if "node" in line else map(first_word, line["nodes"]))
        ]


def first_word(text: str) -> str:
    return text.partition(" ")[0]


def many(what: ChangeKind, count: int, *, first: int = 0) -> list[tuple[ChangeKind, str, Source]]:
    return [
        (what, f"h{number}", Source("hosts", f"192.0.2.{number % 250}"))
        for number in range(first, first + count)
    ]


def rate_limit() -> tuple[int, int]:
    """Return the seconds and the lines of the unit's limit."""
    unit = (REPOSITORY / "systemd/rollcall-registry.service").read_text()
    seconds = re.search(r"^LogRateLimitIntervalSec=(\d+)s$", unit, re.MULTILINE)
    lines = re.search(r"^LogRateLimitBurst=(\d+)$", unit, re.MULTILINE)
    assert seconds is not None
    assert lines is not None
    return int(seconds[1]), int(lines[1])


@in_virtual_time
async def test_a_few_changes_are_a_line_each_in_their_order() -> None:
    audit = Audit()

    audit.record(
        *many(ChangeKind.ADDED, MAX_SINGLE_LINES - 1),
        (ChangeKind.DELETED, "h0", Source("ops", "::1")),
    )

    reported = [(line["level"], line["event"]) for line in audit.lines]
    assert reported == [("info", "node added")] * 9 + [("info", "node deleted")]
    assert audit.lines[3] == {
        "level": "info",
        "event": "node added",
        "node": "h3",
        "caller": "hosts",
        "remote": "192.0.2.3",
    }
    assert audit.lines[-1]["caller"] == "ops"


@in_virtual_time
async def test_further_changes_of_a_second_share_a_line_for_each_kind() -> None:
    audit = Audit()
    audit.record(*many(ChangeKind.ADDED, MAX_SINGLE_LINES))

    audit.record(*many(ChangeKind.ADDED, 7, first=50), *many(ChangeKind.CHANGED, 8))
    assert len(audit.lines) == MAX_SINGLE_LINES
    await asyncio.sleep(1.01)

    reported = audit.lines[MAX_SINGLE_LINES:]
    assert [(line["level"], line["event"], line["count"]) for line in reported] == [
        ("info", "nodes added", 7),
        ("info", "nodes changed", 8),
    ]
    assert reported[1]["nodes"] == [f"h{n} by hosts from 192.0.2.{n}" for n in range(8)]
    audit.record(*many(ChangeKind.ADDED, 1))
    assert audit.lines[-1]["event"] == "node added"  # in the next second, a line of its own


@pytest.mark.slow
@in_virtual_time
@pytest.mark.parametrize("changes_per_second", [20, 400, 2000, 6000])
async def test_the_lines_stay_below_the_units_limit_and_no_change_is_left_out(
    changes_per_second: int,
) -> None:
    audit = Audit()
    seconds, limit = rate_limit()
    count = changes_per_second * seconds

    for first in range(0, count, 4):
        audit.record(*many(ChangeKind.CHANGED, 4, first=first))
        await asyncio.sleep(4 / changes_per_second)
    audit.log.flush()

    assert audit.names() == [f"h{number}" for number in range(count)]
    assert len(audit.lines) <= 0.8 * limit
    assert all(len(str(line)) < 48 * 1024 for line in audit.lines)  # journald splits longer ones


@in_virtual_time
async def test_changes_that_wait_are_logged_at_the_end() -> None:
    audit = Audit()
    audit.record(*many(ChangeKind.DELETED, MAX_SINGLE_LINES + 3))

    audit.log.flush()

    assert audit.names() == [f"h{number}" for number in range(MAX_SINGLE_LINES + 3)]
    audit.log.flush()
    assert len(audit.lines) == MAX_SINGLE_LINES + 1
