"""What a registry takes from a bucket, and what it keeps since its memory is newer."""

import pytest

from registry.store.nats.backend import BucketContents
from registry.store.nats.delivery import Message
from registry.store.nats.format import (
    FORMAT,
    Age,
    Ages,
    Deletion,
    Format,
    HeardNodes,
    deletion_headers,
    encode,
    node_value,
)
from registry.store.protocol import HeardBefore
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.stores.conformance import DOCUMENT, node
from tests.support.registry.stores.shared_conformance import numbered

HEARD_AT = 7
HEARD = ("a", HEARD_AT, "192.0.2.7")


def stored(sequence: int, uptime: float, document: bytes = DOCUMENT) -> Message:
    value = node_value(node("a", document), by="other-1", uptime=uptime)
    return Message(sequence, "node.a", value, {}, 0)


def deleted(sequence: int, uptime: float) -> Message:
    value = encode(Deletion(by="other-2", uptime=uptime))
    return Message(sequence, "node.a", value, deletion_headers(), 0)


async def test_a_deletion_from_before_takes_no_node_away_if_the_bucket_has_lost_its_end() -> None:
    parts = Parts("b")
    for message in (stored(1, 1.0), deleted(2, 2.0), stored(3, 3.0)):
        parts.applier.receive(message)

    parts.applier.restart_after_loss(2, is_certain=True)
    parts.applier.receive(deleted(2, 2.0))

    assert list(parts.memory.nodes) == ["a"]
    assert not parts.revisions.is_stored("a")  # so it is put back once the host reports
    parts.applier.receive(deleted(3, 4.0))  # by a registry that went on
    assert list(parts.memory.nodes) == []


@pytest.mark.parametrize(
    ("missed", "documents"),
    [
        pytest.param(stored(3, 2.0, numbered(3)), [numbered(3)], id="changed"),
        pytest.param(deleted(3, 2.0), [], id="deleted"),
    ],
)
async def test_a_change_that_was_never_delivered_is_taken_though_later_ones_were(
    missed: Message, documents: list[bytes]
) -> None:
    parts = Parts("b")
    for message in (stored(1, 1.0), heard(5, seen=5)):
        parts.applier.receive(message)

    parts.applier.missed = frozenset({"a"})
    parts.applier.restart_after_loss(5, is_certain=True)
    parts.applier.receive(missed)
    assert [row.document for row in parts.memory.nodes.values()] == documents

    parts.applier.delivered_all()
    parts.applier.receive(stored(6, 9.5, numbered(6)))
    parts.applier.restart_after_loss(5, is_certain=True)  # of the end, this time: memory is newer
    parts.applier.receive(missed)
    assert [row.document for row in parts.memory.nodes.values()] == [numbered(6)]


@pytest.mark.parametrize(
    ("change", "documents"),
    [
        pytest.param(stored(6, 8.5, numbered(6)), [numbered(6)], id="changed"),
        pytest.param(deleted(6, 8.5), [], id="deleted"),
    ],
)
async def test_a_change_that_comes_while_all_is_delivered_again_is_taken_whatever_its_uptime(
    change: Message, documents: list[bytes]
) -> None:
    parts = Parts("b")
    for message in (stored(1, 1.0), heard(5, seen=5)):  # at the uptime 9.0
        parts.applier.receive(message)

    parts.applier.missed = frozenset({"another"})
    parts.applier.restart_after_loss(5, is_certain=True)
    for message in (stored(1, 1.0), change):  # by a registry whose clock is behind
        parts.applier.receive(message)

    assert [row.document for row in parts.memory.nodes.values()] == documents
    assert parts.revisions.is_stored("a") == bool(documents)


async def test_a_second_loss_before_all_was_delivered_again_makes_no_earlier_change_new() -> None:
    parts = Parts("b")
    for message in (stored(1, 1.0), stored(4, 4.0, numbered(4)), heard(5, seen=5)):
        parts.applier.receive(message)

    parts.applier.restart_after_loss(5, is_certain=True)
    parts.applier.receive(heard(2, seen=2))
    parts.applier.restart_after_loss(parts.applier.known, is_certain=False)
    parts.applier.receive(stored(3, 3.0, numbered(3)))
    assert [row.document for row in parts.memory.nodes.values()] == [numbered(4)]

    parts.applier.delivered_all()
    parts.applier.restart_after_loss(2, is_certain=True)
    parts.applier.receive(stored(3, 3.0, numbered(3)))
    assert [row.document for row in parts.memory.nodes.values()] == [numbered(3)]


def heard(sequence: int, *, seen: int) -> Message:
    value = encode(HeardNodes(by="other-9", uptime=9.0, heard=[HEARD], seen=seen))
    return Message(sequence, "heard.other.0.1", value, {}, 0)


@pytest.mark.parametrize(
    ("seen", "is_taken"),
    [
        pytest.param(2, False, id="before the node was changed"),
        pytest.param(3, True, id="after that"),
    ],
)
async def test_what_was_seen_counts_for_the_node_as_it_was_then(
    seen: int, *, is_taken: bool
) -> None:
    messages = (stored(1, 1.0), stored(3, 3.0), heard(4, seen=seen))
    running, starting, command = Parts("b"), Parts("b", follow=False), BucketContents()
    for message in messages:
        running.applier.receive(message)
        starting.applier.receive(message)
        command.take(message)

    assert (("heard", HEARD) in running.memory.received) == is_taken
    for (row,) in (starting.applier.take_rows(), command.rows()):
        assert (row.last_update == HEARD_AT) == is_taken


async def test_nothing_is_confirmed_while_the_bucket_has_the_mark_of_another_format() -> None:
    parts = Parts("b")

    def confirmed(sequence: int) -> bool:
        before = len(parts.confirmed)
        by = parts.publisher.next_mark().by
        value = node_value(node("a"), by=by, uptime=float(sequence))
        parts.applier.receive(Message(sequence, "node.a", value, {}, 0))
        return len(parts.confirmed) > before

    assert confirmed(1)
    mark = encode(Format(by="later-1", format=2))
    parts.applier.receive(Message(2, FORMAT, mark, {}, 0))
    assert not confirmed(3)
    parts.applier.receive(Message(4, FORMAT, b"", deletion_headers(), 0))
    assert confirmed(5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("heard", b'{"heard":[]}'),
        ("heard.", b'{"heard":[]}'),
        ("node", b"{}"),
        ("ages", b'{"ages":[]}'),
        ("registry.current", b"no JSON"),
        ("heard.other.0.1", b'{"by":"RUN-x","heard":[]}'),
        ("heard.other.0.2", b'{"by":"RUN","heard":[]}'),
    ],
)
async def test_what_was_written_by_hand_is_ignored(key: str, value: bytes) -> None:
    parts = Parts("b")
    value = value.replace(b"RUN", parts.publisher.run.encode())

    for sequence, headers in enumerate(({}, deletion_headers()), 1):
        parts.applier.receive(Message(sequence, key, value, headers, 0))
    parts.applier.receive(stored(3, 1.0))

    assert list(parts.memory.nodes) == ["a"]
    assert all(name == "a" for _, name in parts.memory.received if name)


async def test_ages_of_another_registry_have_to_one_that_runs() -> None:
    parts = Parts("b")
    parts.publisher.uptime.begin(1000.0)
    parts.applier.receive(stored(1, 1.0))
    parts.publisher.uptime.saw(5000.0)
    ages = Ages(by="other-1", uptime=5000.0, ages=[Age("a", 4000.0, 7, "192.0.2.7")])

    parts.applier.receive(Message(2, "ages.other-1.0", encode(ages), {}, 0))

    kind, reported = parts.memory.received[-1]
    assert kind == "heard before"
    assert isinstance(reported, HeardBefore)
    assert reported[:3] == ("a", 7, "192.0.2.7")
    assert reported.age == pytest.approx(1000, abs=60)
