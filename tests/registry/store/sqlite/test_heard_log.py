"""The log of what was seen: it keeps each age, and stays short."""

import asyncio
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.store.protocol import NAME_DIGEST_BYTES, HeardNode, Row
from registry.store.sqlite.heard_log import MIN_ENTRIES
from registry.store.sqlite.store import SqliteStore
from tests.support.examples import share_of
from tests.support.machine.clocks import ManualClock
from tests.support.registry.stores.conformance import Followed, TouchedNode, touch, touched
from tests.support.registry.stores.sqlite_store import (
    ignore,
    open_store,
    row,
    start_error,
)

HOSTS = [f"h{number:02}" for number in range(25)]
MIN_LOG_ENTRIES = 5
TOO_LATE = touched(row("late")._replace(last_update=2**70))  # no store takes it


class Put(NamedTuple):
    """A node that is added or changed."""

    hostname: str


class Delete(NamedTuple):
    """A host that is forgotten."""

    hostname: str


class Touch(NamedTuple):
    """Hosts that were seen, from a new address if there is one.

    If it is rejected, there is one that no store can take.
    """

    hostnames: list[str]
    address: str = ""
    is_rejected: bool = False


class Restart(NamedTuple):
    """The registry ends, and starts again."""


Step = Put | Delete | Touch | Restart
names = st.sampled_from(HOSTS)
touches = st.builds(
    Touch,
    st.lists(names, max_size=6, unique=True),
    st.sampled_from(["", "", "192.0.2.7", "192.0.2.8"]),
    st.sampled_from([False, False, False, True]),
)
steps = st.one_of(
    touches, touches, touches, st.builds(Put, names), st.builds(Delete, names), st.builds(Restart)
)


class Memory(Followed):
    """Nodes in memory, with the times at which they were seen."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._heard: dict[str, float] = {}
        self._addresses: dict[str, str] = {}

    def put(self, node: Row) -> None:
        self.note_heard(node)
        self._addresses[node.hostname] = node.address

    def note_heard(self, node: Row) -> None:
        self.nodes[node.hostname] = node
        self._heard[node.hostname] = self._clock()

    def note_start(self) -> None:
        """Note that the store has all addresses in the rows of the nodes."""
        self._addresses = {name: node.address for name, node in self.nodes.items()}

    def touched(self, node: Row) -> TouchedNode:
        is_moved = node.address != self._addresses.get(node.hostname)
        return touched(node, is_moved=is_moved)

    def aged(self) -> list[Row]:
        """Return all nodes with their ages, sorted."""
        return [
            self.nodes[name]._replace(age=self._clock() - self._heard[name])
            for name in sorted(self.nodes)
        ]

    def silent(self, seconds: float) -> Iterator[tuple[HeardNode, float]]:
        until = self._clock() - seconds
        for name in [name for name in self.nodes if self._heard[name] <= until]:
            if known := self.nodes.get(name):
                yield self.touched(known), self._clock() - self._heard[name]


class Model:
    """A registry: what it has in memory is what its next start has to find."""

    def __init__(self, path: Path, *, min_log_entries: int = MIN_ENTRIES) -> None:
        self._open = partial(open_store, path, min_log_entries=min_log_entries)
        self.clock = ManualClock()
        self.memory = Memory(self.clock)

    async def run(self, todo: Sequence[Step]) -> None:
        """Carry out these steps, and a restart; check what each start finds."""
        remaining = [*todo, Restart()]
        while remaining:
            async with self._open(uptime=self.clock) as (store, rows):
                assert rows == self.memory.aged()
                self.memory.note_start()
                store.follow(self.memory)
                while not isinstance(step := remaining.pop(0), Restart):
                    self.clock.now += 1
                    await self.carry_out(store, step)
        async with self._open(uptime=self.clock) as (_, rows):
            assert rows == self.memory.aged()

    async def carry_out(self, store: SqliteStore, step: Step) -> None:
        """Let the registry do something, and know of it."""
        now = int(self.clock())
        if isinstance(step, Put):
            node = row(step.hostname)._replace(last_update=now, address=f"put at {now}")
            before = touch(store, step.hostname, last_update=0, address="before")
            await asyncio.gather(before, store.put(node, ignore))
            self.memory.put(node)
        elif isinstance(step, Delete):
            await store.delete(step.hostname, ignore)
            self.memory.nodes.pop(step.hostname, None)
        elif isinstance(step, Touch):
            known = self.memory.nodes
            heard = [known.get(name, row(name)) for name in step.hostnames]
            heard = [
                node._replace(last_update=now, address=step.address or node.address)
                for node in heard
            ]
            nodes = [self.memory.touched(node) for node in heard]
            if step.is_rejected:
                with pytest.raises(OverflowError):
                    await store.touch([*nodes, TOO_LATE], ignore)
                return
            await store.touch(nodes, ignore)
            for node in heard:
                if node.hostname in known:
                    self.memory.note_heard(node)


@pytest.mark.slow
@settings(max_examples=share_of(50))
@given(st.lists(steps, min_size=20, max_size=50))
def test_each_start_finds_what_was_known(
    tmp_path_factory: pytest.TempPathFactory, todo: list[Step]
) -> None:
    path = tmp_path_factory.mktemp("log") / "r.db"
    model = Model(path, min_log_entries=MIN_LOG_ENTRIES)
    asyncio.run(model.run([*map(Put, HOSTS), *todo]))


def entries(path: Path) -> int:
    """Return how many entries the log has, without our code."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT ifnull(sum(length(names)), 0) FROM heard_log"
        (length,) = connection.execute(query).fetchone()
        return int(length) // NAME_DIGEST_BYTES


@pytest.mark.slow
async def test_the_log_stays_short_however_often_nodes_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    model = Model(path)
    hosts = [f"h{number:03}" for number in range(500)]
    lengths = []

    await model.run([Put(name) for name in hosts])
    async with open_store(path, uptime=model.clock) as (store, _):
        store.follow(model.memory)
        for start in [*range(20)] * 10:
            model.clock.now += 1
            await model.carry_out(store, Touch(hosts[start::20]))
            lengths.append(entries(path))

    assert max(lengths) <= 4 * len(hosts) + 1000
    # Some are removed with each write, so that none takes long.
    assert max(before - after for before, after in pairwise(lengths)) <= 8 * (25 + 2)
    await model.run([])


@pytest.mark.slow
async def test_the_log_stays_short_where_no_run_lasts_until_all_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    model = Model(path)
    hosts = [f"h{number:03}" for number in range(500)]
    await model.run([Put(name) for name in hosts])

    for _ in range(6):
        await model.run([Touch(hosts[start::20]) for start in range(18)])

    assert entries(path) <= 4 * len(hosts) + 1000


@pytest.mark.slow
async def test_a_start_writes_the_addresses_of_moved_nodes_to_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    model = Model(path)

    await model.run([Put("h1"), Put("h2"), Touch(["h1", "h2"]), Touch(["h2"], "192.0.2.7")])

    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT address FROM node ORDER BY hostname").fetchall()
    assert rows == [("put at 101",), ("192.0.2.7",)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE heard_log SET names = zeroblob(length(names))",
        "UPDATE heard_log SET uptime = uptime + 1",
        "UPDATE heard_log SET names = 'text'",
        "UPDATE heard_log SET times = 'text'",
    ],
)
async def test_a_damaged_row_of_the_log_is_rejected(change: str, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    await Model(path).run([Put("h1"), Touch(["h1"])])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()

    assert "corrupt: a row of the table heard_log" in await start_error(path)


@pytest.mark.parametrize("times", [([1, 2], [], {}), ([1], [1.0, 2.0], {}), (["x"], [], {}), 5])
async def test_a_row_of_the_log_that_makes_no_sense_is_rejected(
    times: object, tmp_path: Path
) -> None:
    path, encoded = tmp_path / "r.db", msgspec.msgpack.encode(times)
    await Model(path).run([Put("h1"), Touch(["h1"])])
    with closing(sqlite3.connect(path)) as connection:
        (uptime, names) = connection.execute("SELECT uptime, names FROM heard_log").fetchone()
        checksum = zlib.crc32(encoded, zlib.crc32(names, zlib.crc32(repr(uptime).encode())))
        connection.execute("UPDATE heard_log SET times = ?, checksum = ?", [encoded, checksum])
        connection.commit()

    assert "corrupt: a row of the table heard_log" in await start_error(path)
