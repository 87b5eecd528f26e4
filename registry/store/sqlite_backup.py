"""Copies of the SQLite store: taken while it is in use, and put back."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from registry.store import StartError
from registry.store.ownership import take_after
from registry.store.sqlite_file import (
    MIGRATIONS,
    Lock,
    beside,
    check_header,
    check_rows,
    check_version,
    connect,
    publish,
)


def check(path: Path) -> int:
    """Read and check a whole store, which may be in use; give the number of nodes.

    Raises StartError.
    """
    if not path.exists():
        raise StartError(f"{path} does not exist")
    check_version(path, check_header(path), len(MIGRATIONS))
    try:
        with closing(connect(path, mode="ro")) as connection:
            connection.execute("BEGIN")  # one view of it, whatever is written meanwhile
            return check_rows(path, connection)
    except sqlite3.Error as error:
        raise StartError(f"{path} cannot be read: {error}") from error


def copy(path: Path, target: Path) -> int:
    """Write a consistent copy to a new file, whole or not at all; give the number of nodes.

    Raises StartError.
    """
    if target.exists():
        raise StartError(f"{target} exists; a backup replaces nothing")
    check_header(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        with closing(connect(path, mode="ro")) as source, closing(connect(draft, mode="rw")) as to:
            source.backup(to)
            to.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
        nodes = check(draft)
        publish(draft, target)
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"{target} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return nodes


class Restored(NamedTuple):
    """How many nodes a store has now, and where the one is that was there before."""

    nodes: int
    kept: Path | None


def restore(
    backup: Path, path: Path, *, publish: Callable[[Path, Path], None] = publish
) -> Restored:
    """Put a backup in the place of the store, which is kept beside it.

    At any moment there is a whole store. Raises StartError: no registry may be running on it.
    """
    check(backup)
    lock = Lock(path)
    try:
        fresh = beside(path, ".restored")
        fresh.unlink(missing_ok=True)
        nodes = copy(backup, fresh)
        take_after(fresh, path)
        kept = _keep(path)
        publish(fresh, path)
    except OSError as error:
        raise StartError(f"{path} cannot be replaced: {error}") from error
    finally:
        lock.release()
    return Restored(nodes, kept)


def _keep(path: Path) -> Path | None:
    """Give a store a second name, that nothing has, and take its log away from the first."""
    _fold(path)
    left = [suffix for suffix in ("", "-wal") if beside(path, suffix).exists()]
    if not left:
        return None
    kept = _unused(path)
    for suffix in left:
        os.link(beside(path, suffix), beside(kept, suffix))
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink(missing_ok=True)
    return kept


def _fold(path: Path) -> None:
    """Bring what is in the log into the file; of a broken store the log stays beside it."""
    with suppress(StartError, sqlite3.Error):
        check_header(path)
        with closing(connect(path, mode="rw")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()


def _unused(path: Path) -> Path:
    for number in count(1):
        kept = beside(path, ".before-restore" if number == 1 else f".before-restore.{number}")
        if not (kept.exists() or beside(kept, "-wal").exists()):
            return kept
    raise AssertionError("there is always another number")
