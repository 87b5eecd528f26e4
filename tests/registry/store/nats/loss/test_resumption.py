"""Where a registry goes on in a bucket that has lost its end, and what it takes for new then."""

import asyncio

import pytest

from registry.store.nats.bucket import BucketState
from registry.store.nats.delivery import Message
from registry.store.nats.format import HeardNodes, encode, node_value
from registry.store.nats.link import NoConnection
from registry.store.nats.losses import BELIEVE_LOSS_AFTER_SECONDS, Resumption
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.nats.buckets import Parts
from tests.support.registry.stores.conformance import node
from tests.support.registry.stores.shared_conformance import numbered


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
async def test_what_was_there_before_a_loss_is_old_though_the_connection_breaks_off_meanwhile() -> (
    None
):
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
