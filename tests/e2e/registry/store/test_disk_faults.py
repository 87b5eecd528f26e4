"""What faults of disks do to the registry: a power cut, and no room."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from dev.waiting import until
from registry.errors import StoreOpenError
from registry.store.commits import MAX_WRITE_SECONDS
from registry.store.protocol import NAME_DIGEST_BYTES, name_digest
from registry.store.sqlite.backend import SqliteBackend
from registry.store.sqlite.heard_log import Entries, HeardLog
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.machine.disks import fill_disk, memory_disk, new_disk
from tests.support.registry.load.write_load import WriteLoad
from tests.support.registry.stores.sqlite_store import fill, hostnames_of, open_store
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("mkfs.ext4", "mount")
# SQLite makes two files beside the store.
ROOM_TO_OPEN_BYTES = 64 * 1024


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield what is undone after the daemons have ended."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def daemons(stack: ExitStack, tmp_path: Path, free_port: FreePort) -> Iterator[Daemons]:
    """Yield what starts daemons; they end before their disks are unmounted."""
    del stack  # only its place in the order matters
    need_root()
    with Daemons(folder=tmp_path / "daemons", free_port=free_port) as started:
        yield started


def sequences(file: Path) -> dict[str, int]:
    """Read what is stored, without our code."""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT hostname, document ->> '$.kv.seq' FROM node").fetchall()
    return {hostname: int(seq) for hostname, seq in rows}


def test_a_power_cut_loses_nothing_that_was_acknowledged(
    daemons: Daemons, stack: ExitStack, tmp_path: Path
) -> None:
    disk = new_disk(tmp_path)
    folder = stack.enter_context(disk.mounted())
    registry = daemons.registry(store=f"sqlite:///{folder}/r.db", log={"level": "info"})

    acknowledged = WriteLoad(registry, seed=3).run_until_signal(signal.SIGKILL)
    found = disk.after_power_cut()

    registry.wait()
    with found.mounted() as after:
        stored = sequences(after / "r.db")
    assert acknowledged
    assert {host: seq for host, seq in acknowledged.items() if stored.get(host, -1) < seq} == {}


async def test_a_backup_and_a_restored_store_survive_a_power_cut(
    stack: ExitStack, tmp_path: Path
) -> None:
    need_root()
    disk = new_disk(tmp_path)
    folder = stack.enter_context(disk.mounted())
    await fill(tmp_path / "r.db", *[f"h{number}" for number in range(300)])

    SqliteBackend(tmp_path / "r.db").backup(folder / "backup")
    SqliteBackend(folder / "restored.db").restore(tmp_path / "r.db")

    with disk.after_power_cut().mounted() as after:
        assert SqliteBackend(after / "backup").check() == 300
        assert SqliteBackend(after / "restored.db").check() == 300


def test_the_simulated_power_cut_does_take_what_was_not_synced(
    stack: ExitStack, tmp_path: Path
) -> None:
    need_root()
    disk = new_disk(tmp_path)
    folder = stack.enter_context(disk.mounted())
    connection = stack.enter_context(closing(sqlite3.connect(folder / "r.db")))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA synchronous = NORMAL")
    for number in range(1000):
        connection.execute("INSERT INTO t VALUES (?)", [number])
        connection.commit()

    with (
        disk.after_power_cut().mounted() as after,
        closing(sqlite3.connect(after / "r.db")) as found,
    ):
        (kept,) = found.execute("SELECT count(*) FROM t").fetchone()

    assert kept < 1000


class RegistryOnSmallDisk:
    """A registry on a disk that can be filled."""

    def __init__(self, registry: Daemon, folder: Path) -> None:
        self.registry = registry
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room on the disk."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                return

    def make_room(self, size: int) -> None:
        """Leave that many bytes."""
        os.truncate(self._ballast, self._ballast.stat().st_size - size)

    def empty(self) -> None:
        """Make room again."""
        self._ballast.unlink()

    def post(self, hostname: str, text: str, *, times: int = 1) -> int:
        """Send a heartbeat, and return the status of the response."""
        kv = {f"text-{number}": text for number in range(times)}
        body: dict[str, Any] = {"labels": [], "kv": kv}
        return self.registry.ask("POST", f"/nodes/{hostname}", json=body).status_code


def test_a_full_disk_is_507_loses_nothing_and_is_over_when_there_is_room(
    daemons: Daemons, stack: ExitStack, tmp_path: Path
) -> None:
    folder = stack.enter_context(memory_disk(tmp_path / "small", size="4m"))
    registry = daemons.registry(store=f"sqlite:///{folder}/r.db", log={"level": "info"})
    small = RegistryOnSmallDisk(registry, folder)
    assert small.post("first", "x" * 10_000) == 200
    small.fill()

    taken = {"first"}
    for number in range(2000):
        if small.post(f"h{number}", "x" * 10_000) != 200:
            break
        taken.add(f"h{number}")
    rejected = registry.ask(
        "POST", "/nodes/more", json={"labels": ["y"], "kv": {"k": "y" * 10_000}}
    )

    assert rejected.status_code == 507
    assert "full" in rejected.json()["message"]
    assert "Retry-After" in rejected.headers
    reads_go_on(registry, taken)
    registry.kill()
    registry.start()
    rejected = registry.ask(
        "POST", "/nodes/more", json={"labels": ["y"], "kv": {"k": "y" * 10_000}}
    )
    assert rejected.status_code == 507
    reads_go_on(registry, taken)
    small.empty()
    until(lambda: "store" not in registry.ask("GET", "/healthz").json(), "recovery", within=10)
    assert small.post("after", "x" * 10_000) == 200
    registry.kill()
    registry.start()
    nodes = {node["hostname"] for node in registry.ask("GET", "/nodes").json()}
    assert nodes == taken | {"after"}
    assert "Traceback" not in registry.log()


def test_a_change_for_which_there_is_no_room_takes_none_from_small_ones(
    daemons: Daemons, stack: ExitStack, tmp_path: Path
) -> None:
    folder = stack.enter_context(memory_disk(tmp_path / "small", size="4m"))
    small = RegistryOnSmallDisk(daemons.registry(store=f"sqlite:///{folder}/r.db"), folder)
    assert small.post("first", "x") == 200
    small.fill()
    small.make_room(400_000)

    for text in "abc":
        assert small.post("large", "x" * 15_000, times=60) == 507
        assert small.post("first", "x") == 200
        assert small.post("second", text) == 200
    assert "store" not in small.registry.ask("GET", "/healthz").json()
    small.registry.kill()
    small.registry.start()
    nodes = {node["hostname"]: node["kv"] for node in small.registry.ask("GET", "/nodes").json()}
    assert nodes == {"first": {"text-0": "x"}, "second": {"text-0": "c"}}


def test_a_disk_that_hangs_is_503_and_nobody_gets_stale(
    daemons: Daemons, stack: ExitStack, tmp_path: Path
) -> None:
    disk = new_disk(tmp_path)
    folder = stack.enter_context(disk.mounted())
    registry = daemons.registry(
        store=f"sqlite:///{folder}/r.db", nodes={"stale_after_seconds": int(MAX_WRITE_SECONDS) + 2}
    )
    before, after = [{"labels": ["prometheus:x", text], "kv": {}} for text in ("a", "b")]
    for hostname in ("changed", "unchanged"):
        assert registry.ask("POST", f"/nodes/{hostname}", json=before).ok

    with disk.hanging():
        waited = registry.ask("POST", "/nodes/changed", json=after)
        again = registry.ask("POST", "/nodes/changed", json=after)
        until(lambda: registry.ask("GET", "/healthz").status_code == 503, "health", within=10)
        unchanged = registry.ask("POST", "/nodes/unchanged", json=before)
        for rejected in (waited, again, unchanged):
            assert (rejected.status_code, "Retry-After" in rejected.headers) == (503, True)
            assert "disk" in rejected.json()["message"]
        assert registry.ask("GET", "/status").json()["store"]["state"] == "unreachable"
        assert registry.ask("GET", "/nodes?stale=true").json() == []
        assert len(registry.ask("GET", "/prometheus/x").json()) == 2

    until(lambda: registry.ask("POST", "/nodes/changed", json=after).ok, "recovery", within=10)
    assert registry.ask("GET", "/healthz").json() == {"message": "ok"}
    registry.kill()
    registry.start()
    nodes = {node["hostname"]: node["labels"] for node in registry.ask("GET", "/nodes").json()}
    assert nodes == {"changed": after["labels"], "unchanged": before["labels"]}


def test_a_registry_starts_on_a_full_disk_and_takes_changes_once_there_is_room(
    daemons: Daemons, stack: ExitStack, tmp_path: Path
) -> None:
    folder = stack.enter_context(memory_disk(tmp_path / "small", size="4m"))
    registry = daemons.registry(store=f"sqlite:///{folder}/r.db")
    small = RegistryOnSmallDisk(registry, folder)
    assert small.post("first", "x") == 200
    registry.terminate()
    small.fill()

    for _ in range(2):  # the second time, after a kill, there is a log without its index
        registry.start()
        assert small.post("more", "x" * 10_000) == 507
        reads_go_on(registry, {"first"})
        registry.kill()
    with pytest.raises(StoreOpenError, match="the disk is full"):
        SqliteBackend(folder / "r.db").check()
    registry.start()
    small.empty()

    until(lambda: small.post("after", "x") == 200, "room", within=10)
    until(lambda: "store" not in registry.ask("GET", "/healthz").json(), "recovery", within=10)
    assert SqliteBackend(folder / "r.db").check() == 2  # beside the registry
    assert "Traceback" not in registry.log()


def test_a_store_that_is_renamed_is_reported_and_used_again_once_it_is_back(
    daemons: Daemons, tmp_path: Path
) -> None:
    files, away = tmp_path / "store", tmp_path / "away"
    files.mkdir()
    registry = daemons.registry(store=f"sqlite:///{files}/r.db")
    small = RegistryOnSmallDisk(registry, files)
    assert small.post("first", "x") == 200

    files.rename(away)

    assert small.post("more", "x") == 503
    health = registry.ask("GET", "/healthz")
    assert (health.status_code, "was removed, renamed" in health.text) == (503, True)
    assert [node["hostname"] for node in registry.ask("GET", "/nodes").json()] == ["first"]
    until(lambda: "store failing" in registry.log(), "a line in the log", within=10)
    away.rename(files)
    until(lambda: registry.ask("GET", "/healthz").ok, "recovery", within=10)
    assert small.post("more", "x") == 200
    until(lambda: "store works again" in registry.log(), "a line in the log", within=10)


def reads_go_on(registry: Daemon, hostnames: set[str]) -> None:
    """Look at what a registry answers while the disk of its store is full."""
    health = registry.ask("GET", "/healthz")
    assert (health.status_code, health.json()["store"]) == (200, "full")
    assert registry.ask("GET", "/prometheus/web").status_code == 200
    nodes = {node["hostname"] for node in registry.ask("GET", "/nodes").json()}
    assert nodes == hostnames


def entries(path: Path) -> int:
    """Return how many entries the log of heartbeats has, without our code."""
    with closing(sqlite3.connect(path)) as connection:
        (length,) = connection.execute("SELECT sum(length(names)) FROM heard_log").fetchone()
        return int(length) // NAME_DIGEST_BYTES


async def test_a_long_log_is_kept_where_the_disk_has_no_room_to_write_it_anew(
    stack: ExitStack, tmp_path: Path
) -> None:
    need_root()
    folder = stack.enter_context(memory_disk(tmp_path / "small", size="4m"))
    path, hosts = folder / "r.db", [f"h{number:04}" for number in range(3000)]
    await fill(path, *hosts)
    with closing(sqlite3.connect(path)) as connection:
        digests, addresses = list(map(name_digest, hosts)), {0: "192.0.2.99"}
        heard = Entries(digests, [1_700_000_000] * len(hosts), addresses=addresses)
        for _ in range(3):
            HeardLog().append(connection, heard, 1.0)
        connection.commit()
    filler = fill_disk(folder)
    os.truncate(filler, filler.stat().st_size - ROOM_TO_OPEN_BYTES)

    for _ in range(2):
        async with open_store(path) as (_store, rows):
            assert hostnames_of(rows) == hosts
            assert [row[0] for row in rows if row.is_moved] == hosts[:1]
            assert rows[0].address == "192.0.2.99"
        assert entries(path) == 3 * len(hosts)

    filler.unlink()
    async with open_store(path) as (_store, rows):
        assert hostnames_of(rows) == hosts
        assert not any(row.is_moved for row in rows)
        assert rows[0].address == "192.0.2.99"
    assert entries(path) == len(hosts)
