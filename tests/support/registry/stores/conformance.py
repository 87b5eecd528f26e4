"""What each store must show: checks of what NodeStore promises, for a test module to run.

Each check gets a place that is empty at first. Calling it with a clock opens the store there, not
loaded yet; a later call opens the same place again, after the store was closed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from registry.errors import StoreUnavailable
from registry.store.clock import AgeClock
from registry.store.protocol import (
    DoneCallback,
    Heard,
    HeardBefore,
    HeardNode,
    NodeStore,
    Row,
    SharedStore,
    as_shared,
    name_digest,
)
from tests.support.machine.clocks import ManualClock

Place = Callable[[AgeClock], NodeStore]
Check = Callable[[Place], Awaitable[None]]
DOCUMENT = b'{"labels":["a"],"kv":{}}'
LARGE_DOCUMENT = b'{"labels":[],"kv":{"a":"%b"}}' % (b"a" * 100_000)
MANY = 2500


class Followed:
    """Nodes in memory, as a store reports them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Row] = {}
        self.received: list[tuple[str, object]] = []

    def stored(self, row: Row) -> None:
        """Take over a node."""
        self.nodes[row.hostname] = row
        self.received.append(("stored", row.hostname))

    def deleted(self, hostname: str, *, expired: bool) -> None:
        """Forget a node."""
        self.nodes.pop(hostname, None)
        self.received.append(("expired" if expired else "deleted", hostname))

    def heard(self, heard: Sequence[Heard], *, own: bool) -> None:
        """Record which nodes were seen."""
        if not own:
            self.received += [("heard", row) for row in heard]

    def heard_before(self, heard: Sequence[HeardBefore]) -> None:
        """Record when nodes were seen."""
        self.received += [("heard before", one) for one in heard]

    def row(self, hostname: str) -> Row | None:
        """Return a node."""
        return self.nodes.get(hostname)

    def ages(self, after: str) -> list[HeardBefore]:
        """Return the ages of all nodes after a hostname."""
        return [age_of(self.nodes[name]) for name in sorted(self.nodes) if name > after]

    def silent(self, seconds: float) -> Iterator[tuple[HeardNode, float]]:
        """Yield the nodes that are so old, with their ages."""
        silent = [row for row in self.nodes.values() if row.age >= seconds]
        return ((touched(row), row.age) for row in silent)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def unwritten(self) -> int:
        """None: each is written as it is seen."""
        return 0


def age_of(row: Row) -> HeardBefore:
    """Return the age of a node."""
    return HeardBefore(row.hostname, row.last_update, row.address, row.age)


@dataclass
class TouchedNode:
    """A node that was seen."""

    hostname: str
    last_update: int
    address: str
    is_moved: bool

    @property
    def name_digest(self) -> bytes:
        """The digest of its name."""
        return name_digest(self.hostname)


def touched(row: Row, *, is_moved: bool = True) -> TouchedNode:
    """Return a node as one that was seen."""
    return TouchedNode(row.hostname, row.last_update, row.address, is_moved)


class Outcomes(list[Exception | None]):
    """A `done` that keeps what it is called with."""

    def __call__(self, error: Exception | None) -> None:
        """Keep an outcome."""
        self.append(error)


def node(hostname: str, document: bytes = DOCUMENT) -> Row:
    """Return a row to store."""
    return Row(hostname, document, 1_700_000_000, "192.0.2.1")


def touch(
    store: NodeStore,
    *hostnames: str,
    last_update: int = 5,
    address: str = "x",
    done: DoneCallback | None = None,
) -> asyncio.Future[None]:
    """Let a store keep that hosts were seen, from a new address."""
    nodes = [TouchedNode(hostname, last_update, address, is_moved=True) for hostname in hostnames]
    return store.touch(nodes, Outcomes() if done is None else done)


async def continues(place: Place) -> bool:
    """Open a store; return whether it is what the last registry left, and close it."""
    store = place(AgeClock(ManualClock()))
    try:
        return (await store.load()).continues
    finally:
        await store.close()


def shared(store: NodeStore) -> SharedStore:
    """Return a store that several registries can use, as one."""
    found = as_shared(store)
    assert found is not None
    return found


@asynccontextmanager
async def opened(
    place: Place, clock: ManualClock | None = None
) -> AsyncIterator[tuple[NodeStore, Sequence[Row]]]:
    """Open a store, return it with what it holds, and close it."""
    store = place(AgeClock(clock or ManualClock()))
    try:
        rows = (await store.load()).rows
        memory = Followed()
        memory.nodes = {row.hostname: row for row in rows}
        store.follow(memory)
        yield store, rows
    finally:
        await store.close()


async def stored(place: Place) -> dict[str, Row]:
    """Return what a place holds, by hostname."""
    async with opened(place) as (_, rows):
        return {row.hostname: row for row in rows}


async def a_new_place_is_empty(place: Place) -> None:
    """Check that the first start finds no nodes."""
    assert await stored(place) == {}


async def rows_come_back_as_they_were_sorted_by_hostname(place: Place) -> None:
    """Check that every byte of a document is kept, and every text."""
    rows = [
        node("b"),
        Row("a", '{"labels":["grüße 😀"],"kv":{"k":"\\u0000"}}'.encode(), 0, "2001:db8::1"),
        Row("c-1.example.com", DOCUMENT, 2**40, ""),
    ]
    async with opened(place) as (store, _):
        await asyncio.gather(*[store.put(row, Outcomes()) for row in rows])

    async with opened(place) as (_, found):
        assert list(found) == [rows[1], rows[0], rows[2]]


async def the_last_put_replaces_the_earlier_ones(place: Place) -> None:
    """Check that one row is kept for each host, also over a restart."""
    for number in range(3):
        async with opened(place) as (store, _):
            await store.put(node("a", b'{"labels":["%d"],"kv":{}}' % number), Outcomes())

    assert [row.document for row in (await stored(place)).values()] == [b'{"labels":["2"],"kv":{}}']


async def operations_take_effect_in_the_order_of_the_calls(place: Place) -> None:
    """Check it of operations of every kind, which may be made durable in one go."""
    async with opened(place) as (store, _):
        await asyncio.gather(
            store.put(node("a", b'{"labels":["1"],"kv":{}}'), Outcomes()),
            store.put(node("a", b'{"labels":["2"],"kv":{}}'), Outcomes()),
            store.put(node("b"), Outcomes()),
            store.delete("b", Outcomes()),
            touch(store, "b", "a"),
            store.delete("c", Outcomes()),
            store.put(node("c"), Outcomes()),
        )

    found = await stored(place)
    assert sorted(found) == ["a", "c"]
    assert found["a"] == Row("a", b'{"labels":["2"],"kv":{}}', 5, "x")


async def many_hosts_are_forgotten_in_one_go(place: Place) -> None:
    """Check that exactly those are gone, which may take statements of several sizes."""
    hostnames = [f"h{number}" for number in range(350)]
    async with opened(place) as (store, _):
        await asyncio.gather(*[store.put(node(name), Outcomes()) for name in hostnames])
        await touch(store, *hostnames)
        await asyncio.gather(*[store.delete(name, Outcomes()) for name in hostnames[10:310]])

    assert sorted(await stored(place)) == sorted(hostnames[:10] + hostnames[310:])


async def futures_are_done_in_the_order_of_the_calls_each_right_after_its_done(
    place: Place,
) -> None:
    """Check that `done` is called while its future and all later ones are not done."""
    finished: list[int] = []
    futures: list[asyncio.Future[None]] = []

    def done_of(number: int) -> Callable[[Exception | None], None]:
        def done(error: Exception | None) -> None:
            assert error is None
            assert [future.done() for future in futures] == [
                other < number for other in range(len(futures))
            ]
            finished.append(number)

        return done

    async with opened(place) as (store, _):
        futures += [store.put(node(f"h{n % 7}"), done_of(n)) for n in range(50)]
        assert finished == []
        await asyncio.gather(*futures)

    assert finished == list(range(50))


async def unknown_hosts_are_ignored(place: Place) -> None:
    """Check that a touch or a deletion of a host that the store lacks keeps nothing."""
    outcomes = Outcomes()
    async with opened(place) as (store, _):
        await touch(store, "ghost", done=outcomes)
        await store.delete("ghost", outcomes)

    assert outcomes == [None, None]
    assert await stored(place) == {}


async def cancelling_a_future_changes_nothing(place: Place) -> None:
    """Check that the operation takes effect, and that its `done` is called."""
    outcomes = Outcomes()
    async with opened(place) as (store, _):
        store.put(node("a"), outcomes).cancel()
        await store.put(node("b"), outcomes)

    assert outcomes == [None, None]
    assert sorted(await stored(place)) == ["a", "b"]


async def a_row_that_cannot_be_stored_affects_no_other(place: Place) -> None:
    """Check that it is kept if its future says so, and that those around it succeed."""
    outcomes = Outcomes()
    async with opened(place) as (store, _):
        results = await asyncio.gather(
            store.put(node("a"), outcomes),
            store.put(Row("odd", DOCUMENT, 2**70, "x"), outcomes),
            store.put(node("b"), outcomes),
            store.put(node("large", LARGE_DOCUMENT), outcomes),
            return_exceptions=True,
        )

    assert list(outcomes) == list(results)
    assert [*results[:1], *results[2:]] == [None, None, None]
    odd = ["odd"] if results[1] is None else []
    assert sorted(await stored(place)) == ["a", "b", "large", *odd]


async def a_done_that_raises_delays_no_other_future(place: Place) -> None:
    """Check that the loop's exception handler gets the exception, and all futures are done."""
    defects: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: defects.append(context["exception"])
    )

    def fail(_error: Exception | None) -> None:
        raise KeyError("unforeseen")

    outcomes = Outcomes()
    async with opened(place) as (store, _):
        await asyncio.gather(store.put(node("a"), fail), store.put(node("b"), outcomes))

    assert [type(error) for error in defects] == [KeyError]
    assert outcomes == [None]
    assert sorted(await stored(place)) == ["a", "b"]


async def closing_finishes_what_was_begun_and_later_operations_are_rejected(place: Place) -> None:
    """Check that nothing that was accepted is lost, and nobody waits for ever."""
    outcomes = Outcomes()
    async with opened(place) as (store, _):
        begun = [store.put(node(f"h{number:04}"), outcomes) for number in range(MANY)]
        await store.close()
        assert all(future.done() for future in begun)
        late = Outcomes()
        result = (await asyncio.gather(store.put(node("late"), late), return_exceptions=True))[0]

    assert isinstance(result, StoreUnavailable)
    assert late == [result]
    assert outcomes == [None] * MANY
    assert sorted(await stored(place)) == [f"h{number:04}" for number in range(MANY)]


async def ages_leave_out_the_time_in_which_no_registry_ran(place: Place) -> None:
    """Check that a put and a touch reset an age, and that it continues over a restart."""
    clock = ManualClock()
    async with opened(place, clock) as (store, _):
        await store.put(node("old"), Outcomes())
        await store.put(node("touched"), Outcomes())
        clock.now += 60
        await store.put(node("young"), Outcomes())
        await touch(store, "touched")
        clock.now += 30
    clock.now += 1_000_000

    async with opened(place, clock) as (store, rows):
        assert {row.hostname: row.age for row in rows} == {"old": 90, "touched": 30, "young": 30}
        clock.now += 5
    async with opened(place, clock) as (_, rows):
        assert {row.hostname: row.age for row in rows} == {"old": 95, "touched": 35, "young": 35}


async def a_new_place_continues_nothing_until_that_is_confirmed(place: Place) -> None:
    """Check that a restart before the confirmation changes nothing, and that one after it does."""
    for _ in range(2):
        assert not await continues(place)
        async with opened(place) as (store, _rows):
            await store.put(node("a"), Outcomes())
    async with opened(place) as (store, _rows):
        await store.confirm()

    for _ in range(2):
        assert await continues(place)


CHECKS: tuple[Check, ...] = (
    a_new_place_is_empty,
    rows_come_back_as_they_were_sorted_by_hostname,
    the_last_put_replaces_the_earlier_ones,
    operations_take_effect_in_the_order_of_the_calls,
    many_hosts_are_forgotten_in_one_go,
    futures_are_done_in_the_order_of_the_calls_each_right_after_its_done,
    unknown_hosts_are_ignored,
    cancelling_a_future_changes_nothing,
    a_row_that_cannot_be_stored_affects_no_other,
    a_done_that_raises_delays_no_other_future,
    closing_finishes_what_was_begun_and_later_operations_are_rejected,
    ages_leave_out_the_time_in_which_no_registry_ran,
    a_new_place_continues_nothing_until_that_is_confirmed,
)
