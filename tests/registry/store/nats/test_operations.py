"""Operations on nodes end, whatever becomes of the bucket."""

import asyncio
import time
import tracemalloc
from collections.abc import Sequence

import pytest

from registry.errors import StoreUnavailable, TooManyConflicts
from registry.store.clock import AgeClock
from registry.store.nats.delivery import Message
from registry.store.nats.format import node_value
from registry.store.nats.members import Uptime
from registry.store.nats.operations import NodeOperations, Operation, Revisions
from registry.store.nats.publisher import Publisher, Write
from registry.store.protocol import Heard
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.stores.conformance import Outcomes, node


class Conflicting(Publisher):
    """Refuses each write, since its key has another last sequence, until it is sent again."""

    def __init__(self, actual: int) -> None:
        super().__init__("b", Uptime(AgeClock(time.monotonic)))
        self._actual = actual
        self.resent: list[int] = []

    def submit(self, write: Write) -> None:
        write.outcome.conflicted(write, self._actual)

    def is_held(self, write: Write) -> bool:
        return write.expected is not None

    def resend(self, write: Write, expected: int) -> None:
        self.resent.append(expected)
        write.outcome.delivered(1)


class AlwaysConflicting(Conflicting):
    """Refuses each write, however often it is sent."""

    def resend(self, write: Write, expected: int) -> None:
        self.resent.append(expected)
        write.outcome.conflicted(write, expected)


async def test_a_node_that_others_change_all_the_time_is_no_fault_of_the_store() -> None:
    operations = NodeOperations(AlwaysConflicting(actual=0))
    operation = Operation("a", node("a"), Outcomes(), None)
    operations.submit(operation)

    with pytest.raises(TooManyConflicts, match="send it again"):
        await operation.future


async def test_a_conflict_in_a_bucket_that_is_lost_is_sent_to_the_next_one() -> None:
    publisher = Conflicting(actual=5000)
    operations = NodeOperations(publisher)
    operation = Operation("a", node("a"), Outcomes(), None)
    operations.submit(operation)
    operations.reached(4999)
    assert not operation.future.done()

    operations.resend_conflicting()

    await operation.future
    assert publisher.resent == [0]
    assert "a" not in operations


async def test_what_waits_for_another_operation_is_refused_if_its_guard_says_so_then() -> None:
    publisher = Publisher(
        "b", Uptime(AgeClock(time.monotonic)), now=asyncio.get_running_loop().time
    )
    operations = NodeOperations(publisher)
    refusal = KeyError("it belongs to another host")
    first = Operation("a", node("a"), Outcomes(), None)
    second = Operation("a", node("a"), Outcomes(), lambda: refusal)
    third = Operation("a", None, Outcomes(), lambda: None)
    for operation in (first, second, third):
        operations.submit(operation)
    assert second.write is None

    operations.delivered(first, 1)

    assert second.future.exception() is refusal
    assert second.write is None
    assert third.write is not None
    assert third.write.expected == 1


async def test_when_the_store_closes_what_waits_for_a_failed_operation_fails_too() -> None:
    publisher = Publisher(
        "b", Uptime(AgeClock(time.monotonic)), now=asyncio.get_running_loop().time
    )
    operations = NodeOperations(publisher)
    submitted = [Operation("a", node("a"), Outcomes(), None) for _ in range(3)]
    for operation in submitted:
        operations.submit(operation)

    publisher.fail_all(StoreUnavailable("the registry is stopping"))

    assert all(operation.future.done() for operation in submitted)
    for operation in submitted:
        with pytest.raises(StoreUnavailable, match="stopping"):
            await operation.future


class Waiting:
    """What was heard of four hosts, once the operations on two of them are finished."""

    def __init__(self) -> None:
        self.parts = Parts("b")
        self.counted: list[str] = []
        self.refused = Operation("refused", node("refused"), Outcomes(), None)
        self.stored = Operation("stored", node("stored"), Outcomes(), None)
        for operation in (self.refused, self.stored):
            self.parts.operations.submit(operation)
        names = ("refused", "stored", "changed", "same")
        self.parts.operations.after([(name, 7, "192.0.2.7") for name in names], self._act)

    def _act(self, heard: Sequence[Heard]) -> None:
        self.counted += [hostname for hostname, _, _ in heard]

    def change_elsewhere(self, sequence: int, hostname: str) -> None:
        """Deliver a node that another registry stored."""
        value = node_value(node(hostname), by="other-1", uptime=1.0)
        self.parts.applier.receive(Message(sequence, f"node.{hostname}", value, {}, 0))


async def test_what_was_heard_while_others_changed_the_host_does_not_count_for_their_node() -> None:
    waiting, refusal = Waiting(), KeyError("it belongs to another host")
    operations = waiting.parts.operations

    for sequence, hostname in enumerate(("refused", "changed", "stored"), 1):
        waiting.change_elsewhere(sequence, hostname)
    operations.failed(waiting.refused, refusal)
    assert waiting.refused.future.exception() is refusal
    assert waiting.counted == []
    operations.delivered(waiting.stored, 4)  # over the change by the other one

    assert waiting.counted == ["stored", "same"]


async def test_what_was_heard_after_a_change_by_others_counts() -> None:
    waiting = Waiting()
    counted: list[Heard] = []
    waiting.change_elsewhere(1, "same")

    waiting.parts.operations.after([("same", 8, "192.0.2.7")], counted.extend)

    assert counted == [("same", 8, "192.0.2.7")]


def test_hosts_of_which_the_bucket_has_nothing_are_forgotten() -> None:
    revisions = Revisions()
    revisions.record("kept", 1, stored=True)
    revisions.record("lost", 2, stored=True)
    revisions.record("deleted long ago", 3, stored=False)
    revisions.record("deleted", 4, stored=False)
    revisions.record("new", 6, stored=True)

    revisions.keep({"kept", "deleted"}, position=5)

    names = ["kept", "lost", "deleted long ago", "deleted", "new"]
    assert [revisions.expected(name) for name in names] == [1, 0, 0, 4, 6]
    assert revisions.stored_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [20_000, 100_000])
def test_what_hosts_that_were_deleted_leave_in_memory_is_estimated(hosts: int) -> None:
    revisions = Revisions()
    tracemalloc.start()
    for number in range(hosts):
        hostname = f"web-{number:06}.example.com"
        revisions.record(hostname, 1000 + number, stored=True)
        revisions.record(hostname, 1000 + hosts + number, stored=False)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 0.8 * revisions.memory_bytes < taken < 1.2 * revisions.memory_bytes

    revisions.clear()
    assert revisions.memory_bytes == 0
