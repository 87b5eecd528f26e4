"""Whenever connections are lost: in the end, a watcher knows what the list says."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from registry.nodes.directory import STALE
from tests.support.examples import share_of
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.load.large_fleet import rows
from tests.support.registry.load.watcher import Watcher
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.registry.watching import listed

HANG_SECONDS = 10.0
EXPIRE_SECONDS = 2000
# To make a case that fails smaller takes minutes, where each one waits for what does not come.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
QUERIES = ("", "label=service:a")
# It comes last in the list, so that a watcher that knows its last change knows everything.
MARK = "zz-mark"


class Post(NamedTuple):
    """A heartbeat of a host."""

    host: str
    label: str


class Delete(NamedTuple):
    """The deletion of a node, which may be unknown."""

    host: str


class Pass(NamedTuple):
    """Time in which nobody reports."""

    seconds: int


Change = Post | Delete | Pass


class Visit(NamedTuple):
    """A connection of a watcher, and what changes before it and during it.

    It is lost after so many bytes, or else when the watcher knows everything.
    """

    watcher: int
    size: int
    before: Sequence[Change]
    during: Sequence[Change]


class Case(NamedTuple):
    """How many nodes there are at the beginning, how much of changes is kept, and what happens."""

    nodes: int
    change_log_bytes: int
    visits: Sequence[Visit]


HOSTS = st.integers(0, 9).map(lambda number: f"web-{number:06}.example.com")
POSTS = st.builds(Post, HOSTS, st.sampled_from(["service:a", "service:b"]))
PASSES = st.builds(Pass, st.sampled_from([1, 100, 100, 100, EXPIRE_SECONDS]))
CHANGES = st.lists(POSTS | POSTS | st.builds(Delete, HOSTS) | PASSES, max_size=25)
VISITS = st.builds(
    Visit,
    watcher=st.integers(0, len(QUERIES) - 1),
    size=st.integers(1, 2000) | st.integers(1, 100_000),
    before=CHANGES,
    during=CHANGES,
)
CASES = st.builds(
    Case,
    # In the list, 300 nodes are several blocks.
    nodes=st.sampled_from([3, 300]),
    # Some 20 changes, of which all are dropped at once; some 90; all.
    change_log_bytes=st.sampled_from([8_000, 36_000, 1_000_000]),
    visits=st.lists(VISITS, min_size=3, max_size=12),
)


class Fleet:
    """The nodes of a registry, and two watchers of them."""

    def __init__(self, registry: InProcessRegistry) -> None:
        self._registry = registry
        self._marks = 0
        self.watchers = [Watcher(registry.address, f"&{query}") for query in QUERIES]

    async def apply(self, changes: Sequence[Change]) -> None:
        """Carry out changes."""
        for change in changes:
            match change:
                case Post(host, label):
                    assert (await self._registry.post(host, [label])).status == 200
                case Delete(host):
                    answer = await self._registry.ask("DELETE", f"/nodes/{host}")
                    assert answer.status in {200, 404}
                case Pass(seconds):
                    self._registry.clock.pass_seconds(seconds)
                    await self._registry.components.queries.update_ages()

    async def visit(
        self, number: int, during: Sequence[Change] = (), size: int | None = None
    ) -> bool:
        """Let a watcher follow, until it has that many bytes, is cut off or knows everything.

        Return whether it knows everything, which is then checked.
        """
        watcher = self.watchers[number]
        following = asyncio.create_task(watcher.follow(size=size))
        await self.apply(during)
        self._marks += 1
        mark = {"mark": str(self._marks)}
        assert (await self._registry.post(MARK, ["service:a"], mark)).status == 200
        # Where the mark was stale, the event that shows that it is fresh again comes last.
        knowing = asyncio.create_task(
            watcher.until(
                lambda seen: seen.nodes.get(MARK, {}).get("kv") == mark and MARK not in seen.stale
            )
        )
        tasks = following, knowing
        await asyncio.wait(tasks, timeout=HANG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        knows, ended = knowing.done(), following.done()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [each for each in results if isinstance(each, Exception)]
        assert knows or ended, "the last change does not come"
        if knows:
            await self._check(number)
        return knows

    async def _check(self, number: int) -> None:
        nodes = await listed(self._registry, f"?{QUERIES[number]}")
        stale = {
            entry.hostname for entry in self._registry.components.context.directory.stages[STALE]
        }
        assert self.watchers[number].nodes == nodes
        assert self.watchers[number].stale == stale & nodes.keys()


async def watch(case: Case) -> Counter[str]:
    """Go through a case; return how often what happened."""
    async with in_process_registry(
        store=MemoryStore(rows(case.nodes)),
        expire_after=EXPIRE_SECONDS,
        change_log_bytes=case.change_log_bytes,
        level="error",
    ) as registry:
        fleet = Fleet(registry)
        for visit in case.visits:
            await fleet.apply(visit.before)
            await fleet.visit(visit.watcher, visit.during, visit.size)
        for number in range(len(QUERIES)):
            # The change that it waits for may be the one that drops what it needs.
            assert await fleet.visit(number) or await fleet.visit(number)
        kinds = [[event.kind for event in watcher.events[1:]] for watcher in fleet.watchers]
        return Counter(
            resets=sum(each.count("reset") for each in kinds),
            expired=sum(kind == "expired" for kind, _, _ in registry.audit),
            cut_events=sum(watcher.cut_events for watcher in fleet.watchers),
        )


@pytest.mark.slow
def test_after_any_number_of_lost_connections_a_watcher_knows_what_the_list_says() -> None:
    happened = Counter[str]()

    @settings(max_examples=share_of(60), phases=PHASES)
    @given(CASES)
    def holds(case: Case) -> None:
        happened.update(asyncio.run(watch(case)))

    holds()
    assert happened["resets"] > 0
    assert happened["expired"] > 0
    assert happened["cut_events"] > 0
