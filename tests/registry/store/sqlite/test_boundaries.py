"""What the store has of each node, wherever its registry is killed, and whatever is not written."""

import asyncio
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

from clients.message import Heartbeat
from registry.errors import StoreUnavailable
from registry.nodes.changes import Source
from registry.nodes.context import Freshness
from registry.nodes.heartbeats import Report
from registry.prometheus.targets import TargetOptions
from registry.registry import Registry
from registry.store.protocol import DoneCallback, Heard, HeardNode, name_digest
from registry.store.sqlite.heard_log import Entries, HeardLog, Repeated, Repetition
from registry.store.sqlite.store import SqliteStore
from tests.support.machine.clocks import ManualClock
from tests.support.registry.in_process import ManualClocks, context_of
from tests.support.registry.stores.conformance import Followed, touched
from tests.support.registry.stores.sqlite_store import ignore, open_store, row
from tests.support.run.release import some_of

HOSTS = [f"h{number:02}" for number in range(60)]
LIVELY = HOSTS[10:25]
STEPS = 200
FAILING_STEPS = 30
OFTEN, RARELY = 0.7, 0.05
MIN_LOG_ENTRIES = 5
STALE_AFTER = 40.0
TICK_SECONDS = 1e-6
SOURCES = [Source("ops", f"192.0.2.{number}") for number in range(1, 4)]
NOT_TEXT = "\udc80"
TOO_LATE = touched(row("late")._replace(last_update=2**70))  # no store takes it


class RejectingStore(SqliteStore):
    """A store that rejects what was seen while a test says so."""

    rejects = False

    def touch(self, nodes: Sequence[HeardNode], done: DoneCallback) -> asyncio.Future[None]:
        if not self.rejects:
            return super().touch(nodes, done)
        return asyncio.ensure_future(self._reject(nodes, done))

    async def _reject(self, nodes: Sequence[HeardNode], done: DoneCallback) -> None:
        error = StoreUnavailable("rejected by the test")
        with suppress(OverflowError):
            await super().touch([*nodes, TOO_LATE], ignore)
        done(error)
        raise error


class Model:
    """A registry, and what its store has to have of each host."""

    def __init__(self, path: Path, random: Random) -> None:
        self._path = path
        self._clock = ManualClocks()
        self._random = random
        self._sources = dict.fromkeys(HOSTS, SOURCES[0])
        self._versions = dict.fromkeys(HOSTS, 0)
        self._unwritten: dict[str, Heard] = {}
        self.written: dict[str, Heard] = {}
        self._store = RejectingStore(
            path=path,
            monotonic=self._monotonic,
            observe=lambda _operations, _seconds: None,
            min_log_entries=MIN_LOG_ENTRIES,
        )
        freshness = Freshness(
            stale_after=STALE_AFTER, expire_after=0, started=0.0, expire_at_most_percent=0
        )
        clocks = self._clock.clocks()._replace(monotonic=self._monotonic)
        context = context_of(self._store, clocks, freshness=freshness)
        self._components = Registry(context, TargetOptions())

    def _monotonic(self) -> float:
        """Return the time, which is never twice the same."""
        self._clock.uptime += TICK_SECONDS
        return self._clock.uptime

    async def run(self) -> None:
        """Let hosts report, of which most are silent for long, and kill the registry at times."""
        random = self._random
        await self._components.load()
        await self.beat(HOSTS, is_changed=True)
        for _ in range(STEPS):
            self._clock.pass_seconds(3)
            self._components.nodes.state_counts()  # some become stale
            hosts = random.choice([LIVELY, LIVELY, LIVELY, HOSTS])
            await self.beat(random.sample(hosts, 4), is_changed=random.random() < RARELY)
            if random.random() < OFTEN:
                await asyncio.gather(
                    self._change_some(), self._flush(is_rejected=random.random() < RARELY)
                )
            if random.random() < RARELY:
                await self._delete(random.choice(sorted(self.written)))
            assert await self._found_after_kill() == self.written
        await self._store.close()

    async def run_while_changes_fail(self) -> None:
        """Let a host report that it has changed, which fails, whenever others are written."""
        host, other = HOSTS[:2]
        await self._components.load()
        await self.beat([host, other], is_changed=True)
        self._clock.pass_seconds(3)
        await self.beat([host], is_changed=False)
        await self._flush(is_rejected=False)
        for _ in range(FAILING_STEPS):
            self._clock.pass_seconds(3)
            await self.beat([host, other], is_changed=False)
            del self._unwritten[host]  # it is held back while the change is under way
            change = self._change_that_fails(host)
            await asyncio.sleep(0)  # the store's thread has it now, in a batch of its own
            await self._flush(is_rejected=False)
            with pytest.raises(ValueError, match="surrogates"):
                await change
            assert await self._found_after_kill() == self.written
        await self._store.close()

    async def run_with_a_quick_move(self) -> None:
        """Let a host move within a millisecond of its change, and be silent afterwards."""
        host, other = HOSTS[:2]
        await self._components.load()
        await self.beat([other], is_changed=True)
        await self.beat([other], is_changed=False)
        self._clock.pass_seconds(0.0003)
        await self.beat([host], is_changed=True)
        self._clock.pass_seconds(0.0005)
        self._sources[host] = next(each for each in SOURCES if each != self._sources[host])
        await self.beat([host], is_changed=False)
        for _ in range(3 * MIN_LOG_ENTRIES):
            self._clock.pass_seconds(1)
            await self.beat([other], is_changed=False)
            await self._flush(is_rejected=False)
            assert await self._found_after_kill() == self.written
        await self._store.close()

    def _change_that_fails(self, host: str) -> asyncio.Future[None]:
        heartbeat, source = Heartbeat(labels=["changed"], kv={}), Source("ops", NOT_TEXT)
        accept = self._components.nodes.heartbeats.accept
        durable = accept(Report(host, b"changed", source, operator=True), heartbeat).durable
        assert durable is not None
        return durable

    async def _flush(self, *, is_rejected: bool) -> None:
        self._store.rejects = is_rejected
        await self._components.nodes.writes.flush()
        if not is_rejected:
            self.written |= self._unwritten
            self._unwritten.clear()

    async def _change_some(self) -> None:
        """Let some hosts that were seen since the last flush report that they have changed."""
        known = sorted(self._unwritten)
        if self._random.random() < RARELY:
            await self.beat(self._random.sample(known, min(len(known), 2)), is_changed=True)

    async def _delete(self, host: str) -> None:
        with suppress(StoreUnavailable):
            await self._components.nodes.delete(host, SOURCES[0])
            self._unwritten.pop(host, None)
            del self.written[host]

    async def beat(self, hosts: Sequence[str], *, is_changed: bool) -> None:
        """Let hosts report, which may have changed."""
        for host in hosts:
            await self._beat(host, is_changed=is_changed)

    async def _beat(self, host: str, *, is_changed: bool) -> None:
        if is_changed:
            self._versions[host] += 1
        if is_changed or self._random.random() < RARELY:
            self._sources[host] = self._random.choice(SOURCES)
        body, source = b"%d" % self._versions[host], self._sources[host]
        heartbeat = Heartbeat(labels=[body.decode()], kv={})
        heard = (host, int(self._clock.wall), source.address)
        accepted = self._components.nodes.heartbeats.accept
        with suppress(StoreUnavailable):  # it rejected what was flushed last; the host is alive
            result = accepted(Report(host, body, source, operator=True), heartbeat)
            if result.durable is not None:
                await result.durable
                self.written[host] = heard
                self._unwritten.pop(host, None)
                return
        self._unwritten[host] = heard

    async def _found_after_kill(self) -> dict[str, Heard]:
        """Return when each host was seen, and from where, as a start would find it now."""
        copy = self._path.with_name("copy.db")
        for suffix in ("", "-wal"):
            shutil.copy(f"{self._path}{suffix}", f"{copy}{suffix}")
        async with open_store(copy) as (_, rows):
            return {each.hostname: (each.hostname, each.last_update, each.address) for each in rows}


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_of(range(3), 0, reason="further random histories"))
async def test_whatever_was_written_of_a_node_is_found_after_a_kill(
    seed: int, tmp_path: Path
) -> None:
    await Model(tmp_path / "r.db", Random(seed)).run()


@pytest.mark.slow
async def test_a_node_that_moves_right_after_it_was_stored_is_found_at_its_new_address(
    tmp_path: Path,
) -> None:
    await Model(tmp_path / "r.db", Random(0)).run_with_a_quick_move()


@pytest.mark.slow
async def test_a_change_that_fails_costs_nothing_that_was_written_of_its_node(
    tmp_path: Path,
) -> None:
    await Model(tmp_path / "r.db", Random(0)).run_while_changes_fail()


NONE = Entries([], [], [])


class Unwritten(Followed):
    """Nodes of which some were seen, and not written yet."""

    unwritten = 0


def test_a_boundary_is_of_use_once_all_is_written_that_was_seen_before() -> None:
    clock, nodes = ManualClock(), Unwritten()
    repetition = Repetition(nodes, clock, min_entries=1)
    nodes.nodes = {"old": row("old")._replace(age=100)}
    first = repetition.next(1)
    clock.now += 50
    nodes.unwritten = 3
    second = repetition.next(1)

    later = [repetition.next(1) for _ in range(3)]

    old = Entries([name_digest("old")], [1_700_000_000], [100], {0: "192.0.2.1"})
    assert first == Repeated(NONE, 100.0, sets_boundary=True, is_last=False)
    assert second == Repeated(old, 150.0, sets_boundary=True, is_last=False)
    assert later == [None, None, Repeated(NONE, 150.0, sets_boundary=False, is_last=True)]


def test_a_boundary_from_before_a_failure_is_of_no_use() -> None:
    entries = Entries([name_digest("h1")], [1])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE heard_log (id INTEGER PRIMARY KEY, uptime, names, times, checksum)"
        )
        log, nodes = HeardLog(), Followed()
        repetition = Repetition(nodes, ManualClock(), min_entries=1)

        def write(*, fails: bool = False) -> int:
            repeated = repetition.next(1)
            assert repeated is not None
            connection.execute("BEGIN")
            log.append(connection, entries, 1.0)
            log.repeat(connection, repeated)
            log.remove_some(connection)
            connection.execute("ROLLBACK" if fails else "COMMIT")
            (log.fail if fails else log.note_committed)()
            return int(connection.execute("SELECT count(*) FROM heard_log").fetchone()[0])

        assert [write(), write(fails=True), write(), write(), write()] == [1, 1, 2, 3, 2]
        # What was found to be of no use before a failure is removed after it.
        assert [write(fails=True), write()] == [2, 2]
