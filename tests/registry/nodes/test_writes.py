"""Changes of nodes are pending until the store has them or refuses them, and not for longer."""

import asyncio
from collections.abc import Callable

import pytest

from registry.errors import StoreUnavailable
from registry.nodes.directory import KnownNode
from registry.nodes.writes import Writes
from registry.store.protocol import Row
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import clocks_of, context_of
from tests.support.registry.stores.memory_store import MemoryStore

WEB = "web-1"


class Changes:
    """Changes of one node; `left` is what was pending as each of them was done."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.store = MemoryStore()
        self.store.failure = failure
        self.writes = Writes(context_of(self.store, clocks_of(ManualClock())))
        self.left: list[dict[str, KnownNode | None]] = []

    def put(self, entry: KnownNode) -> asyncio.Future[None]:
        return self.writes.put(entry, self._note, lambda: None)

    def delete(self) -> asyncio.Future[None]:
        return self.writes.delete(WEB, self._note, lambda: None)

    def _note(self, error: Exception | None) -> None:
        del error
        self.left.append(dict(self.writes.pending))


def node() -> KnownNode:
    return KnownNode(Row(WEB, b'{"labels":[],"kv":{}}', 1_700_000_000, "192.0.2.1"), heard=0.0)


@pytest.mark.parametrize("failure", [None, StoreUnavailable("broken")], ids=["stored", "refused"])
@pytest.mark.parametrize(
    "change", [lambda made: made.put(node()), Changes.delete], ids=["put", "delete"]
)
async def test_a_change_leaves_nothing_behind_whether_it_succeeds_or_fails(
    change: Callable[[Changes], asyncio.Future[None]], failure: Exception | None
) -> None:
    made = Changes(failure)
    future = change(made)
    assert list(made.writes.pending) == [WEB]
    await asyncio.wait([future])
    assert future.exception() is failure
    assert made.left == [{}]

    made.store.failure = None
    made.writes.touch(node())
    await made.writes.flush()
    assert made.writes.touched == 0, "it is still held back"


async def test_what_is_pending_is_the_last_change() -> None:
    made, first, last = Changes(), node(), node()
    await asyncio.gather(made.put(first), made.delete(), made.put(last))
    assert made.left == [{WEB: last}, {WEB: last}, {}]

    made.left.clear()
    await asyncio.gather(made.put(first), made.delete())
    assert made.left == [{WEB: None}, {}]
