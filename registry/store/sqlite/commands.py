"""What the commands do with a SQLite store: check, backup, delete, restore, copy."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path

from registry.errors import StoreOpenError
from registry.store.durable import rename_durably
from registry.store.protocol import Restored, Row
from registry.store.sqlite import stamp
from registry.store.sqlite.database import (
    StoreLock,
    check_header,
    check_no_orphaned_wal,
    connect,
    connect_locked,
    inherit_owner,
    sibling,
    sqlite_errors,
    unused_name,
)
from registry.store.sqlite.schema import (
    check_structure,
    check_version,
    create,
    read_rows,
    write_generation,
)


def check(path: Path) -> int:
    """Read and check a whole store, which may be in use; return the number of nodes.

    Raises StoreOpenError.
    """
    if not path.exists():
        raise StoreOpenError(f"{path} does not exist")
    check_header(path)
    with sqlite_errors(path), closing(connect(path, mode="ro")) as connection:
        connection.execute("BEGIN")  # one snapshot, whatever is written meanwhile
        check_version(path, connection)
        check_structure(path, connection)
        return sum(1 for _ in read_rows(path, connection))


def write_backup(path: Path, target: Path) -> int:
    """Write a consistent copy to a new file, whole or not at all; return the number of nodes.

    Raises StoreOpenError.
    """
    if target.exists():
        raise StoreOpenError(f"{target} exists; a backup replaces nothing")
    check_header(path)
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        with closing(connect(path, mode="ro")) as source, closing(connect(draft, mode="rw")) as to:
            check_version(path, source)
            source.backup(to)
            to.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
            write_generation(to, "")  # it is no registry's own
        nodes = check(draft)
        rename_durably(draft, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreOpenError(f"{target} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return nodes


def delete(path: Path, hostnames: Iterable[str]) -> list[str]:
    """Delete nodes durably, all or none; return the hostnames that were known.

    Works on a store of any size, as no node is read. Raises StoreOpenError, also if the store is in
    use.
    """
    if not path.exists():
        check_no_orphaned_wal(path)
        raise StoreOpenError(f"{path} does not exist")
    with closing(StoreLock(path)):
        check_header(path)
        with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
            check_version(path, connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            statement = "DELETE FROM node WHERE hostname = ?"
            deleted = [name for name in hostnames if connection.execute(statement, [name]).rowcount]
            connection.execute("COMMIT")
    return deleted


def restore(
    backup: Path, path: Path, *, rename_durably: Callable[[Path, Path], None] = rename_durably
) -> Restored:
    """Put a backup in the place of the store, which is kept beside it.

    At any moment there is a whole store. Raises StoreOpenError, also if the store is in use.
    """
    check(backup)
    try:
        with closing(StoreLock(path)):
            fresh = sibling(path, ".restored")
            fresh.unlink(missing_ok=True)
            nodes = write_backup(backup, fresh)
            inherit_owner(fresh, path)
            stamp.remove(path)
            kept = _keep_previous(path)
            rename_durably(fresh, path)
    except OSError as error:
        raise StoreOpenError(f"{path} cannot be replaced: {error}") from error
    return Restored(nodes, None if kept is None else str(kept))


def _keep_previous(path: Path) -> Path | None:
    """Link the store under an unused name, which is returned, and unlink the log of the first."""
    _checkpoint(path)
    existing = [suffix for suffix in ("", "-wal") if sibling(path, suffix).exists()]
    if not existing:
        return None
    kept = unused_name(path, ".before-restore")
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


def snapshot(path: Path) -> list[Row]:
    """Return all nodes with their ages, of a store or of a backup.

    Raises StoreOpenError, also if the store is in use.
    """
    if not path.exists():
        check_no_orphaned_wal(path)
        raise StoreOpenError(f"{path} does not exist")
    # A backup has no lock beside it: a registry makes that when it starts.
    has_lock = sibling(path, ".lock").exists()
    with closing(StoreLock(path)) if has_lock else nullcontext():
        check_header(path)
        with sqlite_errors(path), closing(connect_locked(path)) as connection:
            check_version(path, connection)
            check_structure(path, connection)
            return list(read_rows(path, connection))


def fill(path: Path, rows: Sequence[Row]) -> None:
    """Make a store of these nodes, whole or not at all. Raises StoreOpenError if there is one."""
    with closing(StoreLock(path)):
        if path.exists():
            raise StoreOpenError(f"{path} exists; a copy replaces nothing: name another file")
        create(path, rows)
