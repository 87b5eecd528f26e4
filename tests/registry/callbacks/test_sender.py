"""What is posted to a receiver, in which order, and what follows a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from registry.callbacks.receiver import Callback, CallbackUrl, PostFailed
from registry.callbacks.sender import MAX_CHANGES, CallbackSender, ChangeBatches, Parts, Progress
from registry.nodes.change_log import ChangeLog
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange
from registry.nodes.directory import KnownNode
from registry.nodes.search import Filters
from registry.store.protocol import Row
from runtime.pauses import Backoff
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.in_process import clocks_of, context_of
from tests.support.registry.stores.memory_store import MemoryStore

WEB = "service:web"


class Posts(CallbackUrl):
    """A receiver without HTTP: what it took, and whether it takes anything."""

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback, lambda: 0.0)
        self.bodies: list[list[dict[str, Any]]] = []
        self.times: list[float] = []
        self.tries = 0
        self.failure: Exception | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """Yield a context in which bodies can be posted."""
        yield

    async def post(self, body: bytes) -> None:
        """Take a body."""
        self.tries += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.bodies.append(msgspec.json.decode(body)["changes"])
        self.times.append(asyncio.get_running_loop().time())

    def taken(self) -> list[str]:
        """Return each change with what it is about."""
        return [
            f"{change['change']} {change.get('reason') or change['node']['hostname']}"
            for body in self.bodies
            for change in body
        ]


class Harness:
    """A sender over a history that the test writes."""

    def __init__(self, *, labels: tuple[str, ...] = (), max_bytes: int = 1_000_000) -> None:
        self.history = ChangeLog(max_bytes=max_bytes)
        callback = Callback(url="http://r/x?secret", key=b"k", filters=Filters(labels=labels))
        self.receiver = Posts(callback)
        self.ready = True
        self.logged = LogCapture()
        self.progress = Progress()
        log = structlog.wrap_logger(None, processors=[self.logged])
        clocks = clocks_of(asyncio.get_running_loop().time)
        context = context_of(MemoryStore(), clocks, log=log)
        parts = Parts(context, ChangeBatches(self.history), lambda: self.ready)
        backoff = Backoff(max_seconds=60, random=Random(1))
        self.sender = CallbackSender(self.receiver, self.progress, backoff, parts)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the sender while the context is open."""
        task = asyncio.create_task(self.sender.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def change(
        self, kind: ChangeKind, name: str, *, labels: str = WEB, before: str | None = None
    ) -> None:
        """Record a change of a node, which had the labels `before`, if any."""
        head = entry(name, before).head if before is not None else None
        self.history.record(NodeChange(kind, entry(name, labels), REGISTRY, head))


def entry(name: str, labels: str) -> KnownNode:
    """Return a node with these labels, separated by commas."""
    document = b'{"labels":%b,"kv":{}}' % msgspec.json.encode(labels.split(","))
    return KnownNode(Row(name, document, 7, "127.0.0.1"), heard=0.0)


@in_virtual_time
async def test_changes_are_posted_in_order_after_a_resync_within_a_second() -> None:
    harness = Harness()
    harness.change(ChangeKind.ADDED, "before")
    async with harness.running():
        await asyncio.sleep(1)
        harness.change(ChangeKind.ADDED, "h1")
        harness.change(ChangeKind.CHANGED, "h1", labels="other", before=WEB)
        changed_at = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        harness.change(ChangeKind.STALE, "h1")
        harness.change(ChangeKind.FRESH, "h1")
        harness.change(ChangeKind.DELETED, "h1")
        await asyncio.sleep(1)

    assert [len(body) for body in harness.receiver.bodies] == [1, 2, 3]
    assert harness.receiver.times[1] - changed_at <= 1
    assert harness.receiver.taken() == [
        "resync started",
        "added h1",
        "changed h1",
        "stale h1",
        "fresh h1",
        "gone h1",
    ]
    ids = [change["id"] for body in harness.receiver.bodies for change in body]
    assert [text.rpartition("-")[2] for text in ids] == ["1", "2", "3", "4", "5", "6"]
    assert all(harness.history.position_of(text) is not None for text in ids)
    assert harness.receiver.bodies[1][1]["node"] == {
        "hostname": "h1",
        "labels": ["other"],
        "kv": {},
        "last_update": 7,
    }


@in_virtual_time
async def test_with_labels_only_nodes_that_have_them_all_are_reported() -> None:
    harness = Harness(labels=(WEB, "x"))
    async with harness.running():
        await asyncio.sleep(1)
        harness.change(ChangeKind.ADDED, "other")
        harness.change(ChangeKind.ADDED, "h1", labels=f"{WEB},x")
        harness.change(ChangeKind.CHANGED, "h2", labels=f"{WEB},x", before=WEB)
        harness.change(ChangeKind.CHANGED, "h1", labels=WEB, before=f"{WEB},x")
        harness.change(ChangeKind.STALE, "h1", labels=WEB)
        harness.change(ChangeKind.CHANGED, "h2", labels=f"{WEB},x,y", before=f"{WEB},x")
        await asyncio.sleep(1)

    assert harness.receiver.taken()[1:] == ["added h1", "added h2", "gone h1", "changed h2"]
    assert harness.sender.waiting == 0


@in_virtual_time
async def test_a_post_that_fails_is_repeated_until_it_is_taken_and_reported_once() -> None:
    harness = Harness()
    async with harness.running():
        await asyncio.sleep(1)
        harness.receiver.failure = PostFailed("it answers 500")
        for number in range(3):
            harness.change(ChangeKind.ADDED, f"h{number}")
        await asyncio.sleep(600)
        tries, failing = harness.receiver.tries, harness.sender.failing_seconds
        waiting = harness.sender.waiting
        harness.receiver.failure = None
        await asyncio.sleep(60)

    assert harness.receiver.taken() == ["resync started", "added h0", "added h1", "added h2"]
    assert 590 < failing <= 600
    assert waiting == 3
    assert 10 < tries < 50  # a pause is 30 s in the mean
    assert (harness.progress.posts, harness.progress.failures) == (2, tries - 1)
    assert (harness.progress.changes, harness.progress.resyncs) == (3, 1)
    assert harness.sender.failing_seconds == 0
    events = [(entry["event"], entry["callback"]) for entry in harness.logged.entries]
    name = "http://r/x"
    assert events == [
        ("callback resync", name),
        ("callback fails", name),
        ("callback works again", name),
    ]
    assert harness.logged.entries[1]["reason"] == "it answers 500"


@in_virtual_time
async def test_another_reason_of_a_failure_is_logged_too() -> None:
    harness = Harness()
    async with harness.running():
        for reason in ("no connection", "it answers 403"):
            harness.receiver.failure = PostFailed(reason)
            await asyncio.sleep(300)

    assert [entry["reason"] for entry in harness.logged.entries] == [
        "no connection",
        "it answers 403",
    ]


@in_virtual_time
async def test_changes_that_are_no_longer_kept_become_one_resync() -> None:
    harness = Harness(max_bytes=100_000)
    async with harness.running():
        await asyncio.sleep(1)
        harness.receiver.failure = PostFailed("away")
        for number in range(2000):
            harness.change(ChangeKind.ADDED, f"h{number}")
        await asyncio.sleep(120)
        harness.receiver.failure = None
        await asyncio.sleep(60)
        harness.change(ChangeKind.ADDED, "after")
        await asyncio.sleep(1)

    assert harness.receiver.taken() == ["resync started", "resync missed", "added after"]


@pytest.mark.slow
@in_virtual_time
async def test_many_changes_are_posted_at_once_in_bodies_that_are_bounded() -> None:
    harness = Harness(max_bytes=10_000_000)
    async with harness.running():
        await asyncio.sleep(1)
        for number in range(2500):
            harness.change(ChangeKind.ADDED, f"h{number}")
        await asyncio.sleep(1)
        for number in range(6):
            harness.change(ChangeKind.ADDED, f"large{number}", labels="x" * 100_000)
        await asyncio.sleep(1)

    sizes = [len(body) for body in harness.receiver.bodies]
    assert sum(sizes) == 2507
    assert max(sizes) <= MAX_CHANGES
    assert sizes[-2:] == [3, 3]  # a quarter of a mebibyte is passed with the third
    assert len(sizes) <= 7
    assert harness.receiver.taken()[1:2501] == [f"added h{number}" for number in range(2500)]


@in_virtual_time
async def test_nothing_is_posted_while_the_nodes_cannot_be_read_in_full() -> None:
    harness = Harness()
    harness.ready = False
    async with harness.running():
        harness.change(ChangeKind.ADDED, "h1")
        await asyncio.sleep(100)
        assert harness.receiver.tries == 0
        harness.ready = True
        await asyncio.sleep(1)

    assert harness.receiver.taken() == ["resync started"]


@in_virtual_time
async def test_a_defect_ends_nothing() -> None:
    harness = Harness()
    harness.receiver.failure = ZeroDivisionError()
    async with harness.running():
        await asyncio.sleep(1)
        harness.receiver.failure = None
        await asyncio.sleep(60)

    assert harness.receiver.taken() == ["resync started"]
    assert harness.logged.entries[0]["event"] == "defect"
