"""One thread that writes for many: whatever a batch meets, nobody waits for ever."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from registry.errors import StoreUnavailable, StoreUnreachable
from registry.store.commits import GroupCommit
from registry.store.protocol import Row
from registry.store.sqlite.store import SqliteStore


def ignore(_outcome: object, _also: object = None) -> None:
    """Do nothing."""


def defects() -> list[Exception]:
    """Collect what would be logged as a defect."""
    found: list[Exception] = []

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        found.append(context["exception"])

    asyncio.get_running_loop().set_exception_handler(note)
    return found


async def test_after_a_defect_the_writer_goes_on_and_the_defect_is_reported() -> None:
    reported = defects()

    def write(operations: Sequence[str]) -> Sequence[Exception | None]:
        if "poison" in operations:
            raise KeyError("unforeseen")
        return [None] * len(operations)

    commits = GroupCommit[str](name="test", write=write, observe=ignore)
    outcomes: list[Exception | None] = []
    with pytest.raises(StoreUnavailable, match="log"):
        await asyncio.wait_for(commits.submit("poison", outcomes.append), 10)
    await asyncio.wait_for(commits.submit("good", outcomes.append), 10)
    await asyncio.wait_for(commits.close(), 10)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, type(None)]
    assert [type(error) for error in reported] == [KeyError]


async def test_a_done_that_raises_delays_no_other_future_of_the_batch() -> None:
    reported = defects()
    commits = GroupCommit[str](
        name="test", write=lambda operations: [None] * len(operations), observe=ignore
    )

    def fail(_outcome: Exception | None) -> None:
        raise KeyError("unforeseen")

    waiting = [commits.submit("a", fail), commits.submit("b", ignore)]
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    await commits.close()

    assert len(reported) == 1


class Failing(sqlite3.Connection):
    """A connection that can be made to fail as no SQLite of today does."""

    failing = False

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.failing and not sql.startswith("BEGIN"):
            raise sqlite3.ProgrammingError("without a name, and the rollback fails too")
        return super().execute(sql, *parameters)


class FailingStore(SqliteStore):
    """A store over such a connection."""

    def fail(self, *, failing: bool) -> None:
        """Make every write fail from now on, or no longer."""
        assert isinstance(self._connection, Failing)
        self._connection.failing = failing

    def _open(self) -> sqlite3.Connection:
        super()._open().close()
        return sqlite3.connect(
            self._path, factory=Failing, isolation_level=None, check_same_thread=False
        )


async def test_a_rollback_that_fails_too_is_an_outage_that_ends(tmp_path: Path) -> None:
    reported = defects()
    store = FailingStore(path=tmp_path / "r.db", monotonic=lambda: 0.0, observe=ignore)
    await store.load()
    row = Row("a", b'{"labels":[],"kv":{}}', 0, "192.0.2.1")

    store.fail(failing=True)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.put(row, ignore), 10)
    store.fail(failing=False)
    with pytest.raises(StoreUnavailable):  # the transaction is still open, and is ended now
        await asyncio.wait_for(store.put(row, ignore), 10)
    await asyncio.wait_for(store.put(row, ignore), 10)
    await store.close()

    assert reported == []


async def test_while_the_disk_hangs_nobody_waits_and_what_it_keeps_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("registry.store.commits.MAX_WRITE_SECONDS", 0.05)
    goes_on = Event()

    def write(operations: Sequence[str]) -> Sequence[Exception | None]:
        goes_on.wait(10)
        return [None] * len(operations)

    commits = GroupCommit[str](name="test", write=write, observe=ignore)
    outcomes: dict[str, Exception | None] = {}
    is_known = asyncio.Event()

    def submit(name: str) -> asyncio.Future[None]:
        def done(outcome: Exception | None) -> None:
            outcomes[name] = outcome
            if name == "being written":
                is_known.set()

        return commits.submit(name, done)

    being_written = submit("being written")
    await asyncio.sleep(0)  # the batch is handed over
    for waiting in (being_written, submit("queued")):
        with pytest.raises(StoreUnreachable, match="disk"):
            await asyncio.wait_for(waiting, 10)
    with pytest.raises(StoreUnreachable):
        await asyncio.wait_for(submit("later"), 10)
    assert {name: type(outcome) for name, outcome in outcomes.items()} == {
        "queued": StoreUnreachable,
        "later": StoreUnreachable,
    }

    goes_on.set()
    await asyncio.wait_for(is_known.wait(), 10)
    await asyncio.wait_for(submit("after"), 10)
    await commits.close()

    assert outcomes["being written"] is outcomes["after"] is None
