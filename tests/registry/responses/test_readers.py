"""The bound on what all readers of large answers hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from registry.errors import TooManyReaders
from registry.nodes.listing import NodeFilter
from registry.nodes.search import Filters
from registry.responses.encoding import Pinned, WholeBody
from registry.responses.readers import (
    PATIENCE_SECONDS,
    READER_BYTES,
    Expected,
    Reader,
    Readers,
)
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import in_process_registry

SIZE = 1_000_000


class Room(Readers):
    """Room for two bodies with their readers, and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(
            max_held_bytes=2 * (SIZE + READER_BYTES), wait_seconds=0.05, clock=self.clock
        )
        self.aborted: list[str] = []

    @asynccontextmanager
    async def reader(self, name: str, body: WholeBody | None = None) -> AsyncIterator[Reader]:
        """Let a reader in that reads a body."""
        async with self.reading(lambda: self.aborted.append(name), owner=name) as reader:
            if body is not None:
                self.attach(reader, body)
            yield reader


def body() -> WholeBody:
    return WholeBody(b"x" * SIZE)


async def test_who_finds_no_room_waits_and_is_rejected_in_the_end() -> None:
    room = Room()
    async with room.reader("a", body()), room.reader("b", body()):
        with pytest.raises(TooManyReaders):
            async with room.reader("c"):
                pass
    assert room.held_bytes() == 0
    async with room.reader("c", body()):
        assert len(room) == 1


async def test_who_waits_is_let_in_when_another_leaves() -> None:
    room = Room()
    async with AsyncExitStack() as first, room.reader("b", body()):
        await first.enter_async_context(room.reader("a", body()))
        waiting = asyncio.create_task(room.reader("c", body()).__aenter__())
        await asyncio.sleep(0)
        await first.aclose()
        assert (await waiting).bodies


async def test_a_body_that_many_read_counts_once() -> None:
    room = Room()
    shared = body()
    async with AsyncExitStack() as stack:
        for number in range(8):
            await stack.enter_async_context(room.reader(f"{number}", shared))
        assert room.held_bytes() == SIZE + 8 * READER_BYTES


async def test_equal_bodies_that_are_expected_count_as_two() -> None:
    room = Room()
    expected = Expected("all", SIZE // 4)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(room.reading(lambda: None, expected=expected))
        assert room.held_bytes() == SIZE // 2 + 4 * READER_BYTES


@pytest.mark.slow
async def test_only_who_reads_for_very_long_is_cut_off_to_make_room() -> None:
    room = Room()
    async with room.reader("slow", body()):
        room.clock.now += PATIENCE_SECONDS - 1
        async with room.reader("quick", body()):
            with pytest.raises(TooManyReaders):
                async with room.reader("third"):
                    pass
            assert room.aborted == []
            room.clock.now += 1
            with pytest.raises(TooManyReaders):  # the connection of the test does not end
                async with room.reader("third"):
                    pass
    assert set(room.aborted) == {"slow"}


async def test_one_reader_is_always_let_in() -> None:
    room = Readers(max_held_bytes=1, wait_seconds=0.05)
    async with room.reading(lambda: None, expected=Expected("all", SIZE)):
        assert len(room) == 1


class PinningBody(WholeBody):
    """A body that keeps what was replaced since it was made."""

    def __init__(self, owner: str, pinned: int) -> None:
        super().__init__(b"")
        self._pinned = Pinned(owner, pinned)

    def pinned(self) -> Pinned:
        return self._pinned


async def test_what_was_replaced_is_counted_once_for_all_who_read_older_lists() -> None:
    room = Room()
    async with (
        room.reader("older", PinningBody("nodes", 3000)),
        room.reader("newer", PinningBody("nodes", 1000)),
        room.reader("targets", PinningBody("targets", 500)),
    ):
        assert room.held_bytes() == 3000 + 500 + 3 * READER_BYTES


async def test_a_listing_keeps_the_nodes_that_are_replaced_while_it_is_read() -> None:
    async with in_process_registry(level="error") as registry:
        for hostname in ("a", "b", "c"):
            await registry.post(hostname, ["x" * 1000])
        listing = await registry.components.queries.list(NodeFilter(Filters()))
        content = b"".join(listing.pieces())
        assert listing.pinned().size == 0
        await registry.post("a", ["y" * 1000])
        await registry.ask("DELETE", "/nodes/b")

        assert 2000 < listing.pinned().size < 2400
        assert b"".join(listing.pieces()) == content


async def test_the_readers_of_one_key_leave_half_of_the_room_to_others() -> None:
    room = Readers(max_held_bytes=8 * READER_BYTES, wait_seconds=0.05)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(room.reading(lambda: None, owner="greedy"))

        with pytest.raises(TooManyReaders):
            await stack.enter_async_context(room.reading(lambda: None, owner="greedy"))
        await stack.enter_async_context(room.reading(lambda: None, owner="other"))

        assert len(room) == 5
    async with room.reading(lambda: None, owner="greedy"):
        assert len(room) == 1


async def test_large_answers_to_one_key_leave_half_of_the_room_to_others() -> None:
    room = Room()
    large = Expected(object(), SIZE // 4)
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(room.reading(lambda: None, owner="greedy"))
        room.attach(reader, body())

        with pytest.raises(TooManyReaders):
            await stack.enter_async_context(room.reading(lambda: None, owner="greedy"))
        await stack.enter_async_context(room.reading(lambda: None, owner="other", expected=large))

        assert len(room) == 2


async def test_what_is_compressed_for_one_key_leaves_half_of_the_room_to_others() -> None:
    room = Readers(max_held_bytes=2 * (SIZE + READER_BYTES))
    small, large = WholeBody(b""), WholeBody(b"x" * (SIZE + 1))
    async with (
        room.reading(lambda: None, owner="greedy") as greedy,
        room.reading(lambda: None, owner="other") as other,
    ):
        room.attach(greedy, large)
        room.attach(other, small)

        assert (room.has_room(large), room.has_room(small)) == (False, True)


async def test_who_waits_for_its_own_key_holds_up_no_other_key() -> None:
    room = Readers(max_held_bytes=8 * READER_BYTES, wait_seconds=30)
    large = Expected("all", READER_BYTES)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(room.reading(lambda: None, owner="greedy"))
        waiting = asyncio.create_task(
            stack.enter_async_context(room.reading(lambda: None, owner="greedy", expected=large))
        )
        await asyncio.sleep(0)

        await stack.enter_async_context(room.reading(lambda: None, owner="other"))

        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
