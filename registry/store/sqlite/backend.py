"""The place of a SQLite store: one file, with those of SQLite and a lock beside it."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Self

from config.server import missing_folder
from registry.errors import StoreOpenError
from registry.store.clock import AgeClock
from registry.store.files import sibling, unused_name
from registry.store.protocol import NodeStore, Observe, Restored, Row
from registry.store.sqlite import stamp
from registry.store.sqlite.database import (
    StoreLock,
    check_header,
    check_no_orphaned_wal,
    connect,
    connect_locked,
    inherit_owner,
    sqlite_errors,
)
from registry.store.sqlite.schema import (
    check_structure,
    check_version,
    create,
    read_rows,
    write_generation,
)
from registry.store.sqlite.store import SqliteStore
from runtime.durable import new_file

SCHEME = "sqlite:///"


class SqliteBackend:
    """A StoreBackend over one file, which `sqlite:///PATH` names."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def from_url(cls, url: str) -> Self | None:
        """Return the backend that a URL names; None if it names no file. Every path is absolute."""
        if not url.startswith(SCHEME) or url == SCHEME:
            return None
        return cls(Path("/", url.removeprefix(SCHEME)))

    def __str__(self) -> str:
        return str(self._path)

    @property
    def database(self) -> Path | None:
        """The file."""
        return self._path

    def open(self, *, clock: AgeClock, observe: Observe) -> NodeStore:
        """Return the store; make the file if there is none. Raises StoreOpenError."""
        return SqliteStore(path=self._path, monotonic=clock, observe=observe)

    def warning(self) -> str | None:
        """Return that the file's directory does not exist, if so."""
        return missing_folder(self._path.parent, daemon="registry")

    def check(self) -> int | None:
        """Check the file and each row; return the number of nodes, None if there is no file."""
        if not self._path.exists():
            check_no_orphaned_wal(self._path)
            return None
        return _check(self._path)

    def backup(self, file: Path) -> int:
        """Copy the store to a new file; return the number of nodes. Raises StoreOpenError."""
        if file.exists():
            raise StoreOpenError(f"{file} exists; a backup replaces nothing")
        check_header(self._path)
        try:
            with new_file(file) as draft:
                return _copy(self._path, draft)
        except (OSError, sqlite3.Error) as error:
            raise StoreOpenError(f"{file} cannot be written: {error}") from error

    def delete(self, hostnames: Sequence[str]) -> list[str]:
        """Delete nodes of a store of any size while no registry runs: no node is read.

        Raises StoreOpenError.
        """
        path = self._path
        self._require_file()
        with closing(StoreLock(path)):
            check_header(path)
            with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
                check_version(path, connection)
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                query = "DELETE FROM node WHERE hostname = ?"
                deleted = [name for name in hostnames if connection.execute(query, [name]).rowcount]
                connection.execute("COMMIT")
        return deleted

    def restore(self, file: Path) -> Restored:
        """Put a backup in the place of the file. Raises StoreOpenError."""
        path = self._path
        _check(file)
        try:
            with closing(StoreLock(path)), new_file(path) as draft:
                nodes = _copy(file, draft)
                inherit_owner(draft, path)
                stamp.remove(path)
                kept = _keep_previous(path)
        except (OSError, sqlite3.Error) as error:
            raise StoreOpenError(f"{path} cannot be replaced: {error}") from error
        return Restored(nodes, None if kept is None else str(kept))

    def snapshot(self) -> list[Row]:
        """Return all nodes of a file that no registry uses. Raises StoreOpenError."""
        path = self._path
        self._require_file()
        # A backup has no lock beside it: a registry makes that when it starts.
        has_lock = sibling(path, ".lock").exists()
        with closing(StoreLock(path)) if has_lock else nullcontext():
            check_header(path)
            with sqlite_errors(path), closing(connect_locked(path)) as connection:
                check_version(path, connection)
                check_structure(path, connection)
                return list(read_rows(path, connection))

    def fill(self, rows: Sequence[Row]) -> None:
        """Make the file, with these nodes. Raises StoreOpenError, also if there is one."""
        with closing(StoreLock(self._path)):
            if self._path.exists():
                text = f"{self._path} exists; a copy replaces nothing: name another file"
                raise StoreOpenError(text)
            create(self._path, rows)

    def _require_file(self) -> None:
        if not self._path.exists():
            check_no_orphaned_wal(self._path)
            raise StoreOpenError(f"{self._path} does not exist")


def _check(path: Path) -> int:
    """Read and check a whole store or a backup; return the number of nodes."""
    if not path.exists():
        raise StoreOpenError(f"{path} does not exist")
    check_header(path)
    with sqlite_errors(path), closing(connect(path, mode="ro")) as connection:
        connection.execute("BEGIN")  # one snapshot, whatever is written meanwhile
        check_version(path, connection)
        check_structure(path, connection)
        return sum(1 for _ in read_rows(path, connection))


def _copy(path: Path, draft: Path) -> int:
    """Copy a store, which may be in use, into an empty file; return the number of nodes."""
    with closing(connect(path, mode="ro")) as source, closing(connect(draft, mode="rw")) as target:
        check_version(path, source)
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
        write_generation(target, "")  # it is no registry's own
    return _check(draft)


def _keep_previous(path: Path) -> Path | None:
    """Link the store under an unused name, which is returned, and unlink the log of the first."""
    _checkpoint(path)
    existing = [suffix for suffix in ("", "-wal") if sibling(path, suffix).exists()]
    if not existing:
        return None
    kept = unused_name(path)
    for suffix in existing:
        os.link(sibling(path, suffix), sibling(kept, suffix))
    for suffix in ("-wal", "-shm"):
        sibling(path, suffix).unlink(missing_ok=True)
    return kept


def _checkpoint(path: Path) -> None:
    """Write the log back into the file; the log of a broken store stays beside it."""
    with suppress(StoreOpenError, sqlite3.Error):
        check_header(path)
        with closing(connect(path, mode="rw")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
