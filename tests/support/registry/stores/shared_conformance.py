"""What each store must show that several registries open at once: checks as in `conformance`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from registry.store.clock import AgeClock
from registry.store.protocol import Guard, Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.stores.conformance import (
    DOCUMENT,
    Check,
    Followed,
    Place,
    node,
    shared,
    stored,
    touch,
)

LOOK_SECONDS = 0.01
MAX_LOOKS = 6000


class OpenedStore:
    """One of several registries on a place: its store, and the nodes that it has in memory."""

    def __init__(self, place: Place) -> None:
        self.store = shared(place(AgeClock(ManualClock())))
        self.memory = Followed()

    async def open(self) -> None:
        """Load the nodes, and follow the changes by others."""
        rows = (await self.store.load()).rows
        self.memory.nodes = {row.hostname: row._replace(age=0.0) for row in rows}
        self.store.follow(self.memory)

    def put(self, row: Row, guard: Guard | None = None) -> asyncio.Future[None]:
        """Store a node, and have it in memory then."""

        def done(error: Exception | None) -> None:
            if error is None:
                self.memory.nodes[row.hostname] = row

        return self.store.put(row, done, guard)

    def delete(self, hostname: str, *, expired: bool = False) -> asyncio.Future[None]:
        """Delete a node, also in memory."""

        def done(error: Exception | None) -> None:
            if error is None:
                self.memory.nodes.pop(hostname, None)

        return self.store.delete(hostname, done, expired=expired)

    def documents(self) -> dict[str, bytes]:
        """Return what each node in memory says."""
        return {row.hostname: row.document for row in self.memory.nodes.values()}


@asynccontextmanager
async def peers(place: Place) -> AsyncIterator[tuple[OpenedStore, OpenedStore]]:
    """Open two stores on one place, and close them."""
    both = OpenedStore(place), OpenedStore(place)
    try:
        for peer in both:
            await peer.open()
        yield both
    finally:
        await asyncio.gather(*[peer.store.close() for peer in both])


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds; asserts that it does within a minute."""
    for _ in range(MAX_LOOKS):
        if holds():
            return
        await asyncio.sleep(LOOK_SECONDS)
    assert holds()


def numbered(number: int) -> bytes:
    """Return a document that differs from those of other numbers."""
    return b'{"labels":["%d"],"kv":{}}' % number


async def each_store_shows_of_what_the_others_did(place: Place) -> None:
    """Check it of additions, changes, touches, deletions and expiries."""
    async with peers(place) as (one, other):
        await one.put(node("a", numbered(1)))
        await eventually(lambda: other.documents() == {"a": numbered(1)})
        await other.put(node("a", numbered(2)))
        await touch(other.store, "a", last_update=7, address="192.0.2.7")
        await eventually(lambda: ("heard", ("a", 7, "192.0.2.7")) in one.memory.received)
        assert one.documents() == {"a": numbered(2)}
        await one.put(node("b"))
        await eventually(lambda: "b" in other.documents())
        await other.delete("b")
        await other.delete("a", expired=True)
        await eventually(lambda: one.documents() == {})
        assert one.memory.received[-2:] == [("deleted", "b"), ("expired", "a")]


async def all_stores_agree_on_the_last_put(place: Place) -> None:
    """Check that two registries that change the same nodes at once end with the same ones."""
    async with peers(place) as (one, other):
        await asyncio.gather(
            *[
                peer.put(node(f"h{number % 10}", numbered(100 * peer_number + number)))
                for number in range(60)
                for peer_number, peer in enumerate((one, other))
            ]
        )
        await eventually(lambda: one.documents() == other.documents())
        assert sorted(one.documents()) == [f"h{number}" for number in range(10)]
        agreed = one.documents()

    assert {row.hostname: row.document for row in (await stored(place)).values()} == agreed


async def a_guard_is_asked_again_if_another_registry_changed_the_node(place: Place) -> None:
    """Check that of two changes at once, the guard of the second is asked, and may reject it.

    It is asked once the first change is in memory.
    """
    rejection = KeyError("it belongs to another host")
    async with peers(place) as both:
        seen: list[dict[str, bytes]] = []

        def guard_of(peer: OpenedStore) -> Guard:
            def guard() -> Exception | None:
                seen.append(peer.documents())
                return rejection

            return guard

        puts = [
            peer.put(node("a", numbered(number)), guard_of(peer))
            for number, peer in enumerate(both)
        ]
        await asyncio.wait(puts)
        errors = [put.exception() for put in puts]
        winner = errors.index(None)
        await eventually(lambda: all(peer.documents() == seen[0] for peer in both))

        assert errors[1 - winner] is rejection
        assert seen == [{"a": numbered(winner)}]
        await both[winner].put(node("a"), guard_of(both[winner]))  # nobody else changed it

    assert [row.document for row in (await stored(place)).values()] == [DOCUMENT]


async def a_guard_is_asked_also_of_what_waited_for_a_change_that_was_rejected(place: Place) -> None:
    """Check that of two changes by one registry, the second is bound to no change of another one.

    Of each node, all changes of one registry take effect, or none of them.
    """
    hosts = [f"h{number}" for number in range(20)]
    async with peers(place) as (one, other):

        def guard_of(peer: OpenedStore, hostname: str, own: set[bytes]) -> Guard:
            return lambda: (
                KeyError("it belongs to another host")
                if peer.documents().get(hostname, b"") not in {b"", *own}
                else None
            )

        own = {numbered(1), numbered(2)}
        puts = {
            name: [
                other.put(node(name, numbered(3)), guard_of(other, name, {numbered(3)})),
                one.put(node(name, numbered(1)), guard_of(one, name, own)),
                one.put(node(name, numbered(2)), guard_of(one, name, own)),
            ]
            for name in hosts
        }
        await asyncio.wait([put for several in puts.values() for put in several])
        await eventually(lambda: one.documents() == other.documents())

        for name, several in puts.items():
            others, first, second = [put.exception() is None for put in several]
            assert first == second != others
            assert one.documents()[name] == numbered(3 if others else 2)


async def a_node_that_expired_is_kept_if_another_registry_changed_it(place: Place) -> None:
    """Check that only a node that is as it was is deleted."""
    async with peers(place) as (one, other):
        await one.put(node("a", numbered(1)))
        await eventually(lambda: "a" in other.documents())
        await asyncio.gather(one.put(node("a", numbered(2))), other.delete("a", expired=True))

    assert [row.document for row in (await stored(place)).values()] == [numbered(2)]


async def a_deletion_can_be_taken_back_at_once_by_any_registry(place: Place) -> None:
    """Check that a node can be added again where it was deleted, and elsewhere."""
    async with peers(place) as (one, other):
        for peer in (one, other, one):
            await peer.put(node("a"))
            await peer.delete("a")
        await other.put(node("a", numbered(3)))
        await eventually(lambda: one.documents() == {"a": numbered(3)})


async def what_the_store_has_lost_is_restored_over_no_change_by_others(place: Place) -> None:
    """Check that a node which a registry puts back replaces no change and no deletion."""
    changed, deleted = [f"changed-{i}" for i in range(20)], [f"deleted-{i}" for i in range(20)]
    async with peers(place) as (one, other):
        for peer in (one, other):
            peer.memory.nodes = {name: node(name, numbered(1)) for name in [*changed, *deleted]}
        await asyncio.gather(
            *[other.put(node(name, numbered(2))) for name in changed],
            *[other.delete(name) for name in deleted],
            touch(one.store, *changed, *deleted, last_update=7),
        )
        expected = dict.fromkeys(changed, numbered(2))
        await eventually(lambda: one.documents() == other.documents() == expected)

    assert {row.hostname: row.document for row in (await stored(place)).values()} == expected


async def each_store_is_up_to_date_while_it_works(place: Place) -> None:
    """Check it of one that writes, and of one to which nothing happens."""
    async with peers(place) as (one, other):
        await one.put(node("a"))
        await eventually(lambda: one.store.is_current)
        await eventually(lambda: other.store.is_current)


async def one_that_catches_up_has_what_was_acknowledged_before(place: Place) -> None:
    """Check that no change by another registry is missing then, however soon that is."""
    async with peers(place) as (one, other):

        async def check(hostname: str) -> None:
            for number in range(4):
                await one.put(node(hostname, numbered(number)))
                await other.store.catch_up()
                assert other.documents()[hostname] == numbered(number)

        await asyncio.gather(*[check(hostname) for hostname in "abcde"])


async def a_confirmation_is_seen_by_all(place: Place) -> None:
    """Check that a change that one registry has confirmed reaches all."""
    async with peers(place) as (one, other):
        assert not other.store.health.continues
        await one.store.confirm()
        await eventually(lambda: other.store.health.continues)


async def changes_wait_until_the_nodes_are_in_memory(place: Place) -> None:
    """Check that what others do between `load` and `follow` is reported after it."""
    one, other = OpenedStore(place), OpenedStore(place)
    await one.open()
    rows = (await other.store.load()).rows
    await one.put(node("a"))
    assert rows == []
    other.store.follow(other.memory)
    await eventually(lambda: other.documents() == {"a": DOCUMENT})
    await asyncio.gather(one.store.close(), other.store.close())


# For stores that several registries may open at once.
SHARED_CHECKS: tuple[Check, ...] = (
    each_store_shows_of_what_the_others_did,
    all_stores_agree_on_the_last_put,
    a_guard_is_asked_again_if_another_registry_changed_the_node,
    a_guard_is_asked_also_of_what_waited_for_a_change_that_was_rejected,
    a_node_that_expired_is_kept_if_another_registry_changed_it,
    a_deletion_can_be_taken_back_at_once_by_any_registry,
    what_the_store_has_lost_is_restored_over_no_change_by_others,
    each_store_is_up_to_date_while_it_works,
    one_that_catches_up_has_what_was_acknowledged_before,
    a_confirmation_is_seen_by_all,
    changes_wait_until_the_nodes_are_in_memory,
)
