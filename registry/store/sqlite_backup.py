"""Copies of the SQLite store: taken while it is in use, and put back."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from registry.store import StartError
from registry.store.sqlite_file import (
    MIGRATIONS,
    Lock,
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
        draft.touch(mode=0o600)
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


def restore(backup: Path, path: Path) -> int:
    """Put a backup in the place of the store, which is kept beside it; give the number of nodes.

    Raises StartError: no registry may be running on the store.
    """
    check(backup)
    lock = Lock(path)
    try:
        fresh = path.with_name(f"{path.name}.restored")
        fresh.unlink(missing_ok=True)
        nodes = copy(backup, fresh)
        for suffix in ("", "-wal", "-shm"):
            old = path.with_name(path.name + suffix)
            if old.exists():
                old.rename(path.with_name(f"{path.name}.before-restore{suffix}"))
        publish(fresh, path)
        return nodes
    finally:
        lock.release()
