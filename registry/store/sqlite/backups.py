"""Copies of the SQLite store: taken while it is in use, and put back."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from registry.errors import StoreOpenError
from registry.store.files.durable import rename_durably
from registry.store.protocol import Restored
from registry.store.sqlite import stamp
from registry.store.sqlite.database import (
    APPLICATION_ID,
    MOVED_ID,
    StoreLock,
    check_header,
    connect,
    set_application,
    sibling,
    sqlite_errors,
    unused_name,
)
from registry.store.sqlite.file_owner import inherit_owner
from registry.store.sqlite.schema import (
    SCHEMAS,
    check_structure,
    clear_generation,
    clear_other_store,
    read_rows,
    read_version,
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
        version = read_version(path, connection, SCHEMAS)
        check_structure(path, connection)
        return sum(1 for _ in read_rows(path, connection, SCHEMAS[version - 1]))


def write_backup(path: Path, target: Path) -> int:
    """Write a consistent copy to a new file, whole or not at all; return the number of nodes.

    A copy of a store that was moved is a store again. Raises StoreOpenError.
    """
    if target.exists():
        raise StoreOpenError(f"{target} exists; a backup replaces nothing")
    check_header(path, allowed={APPLICATION_ID, MOVED_ID})
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        with closing(connect(path, mode="ro")) as source, closing(connect(draft, mode="rw")) as to:
            source.backup(to)
            to.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
            clear_generation(to)
            clear_other_store(to)
            set_application(to, APPLICATION_ID)
        nodes = check(draft)
        rename_durably(draft, target)
    except (OSError, sqlite3.Error) as error:
        raise StoreOpenError(f"{target} cannot be written: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return nodes


def restore(
    backup: Path, path: Path, *, rename_durably: Callable[[Path, Path], None] = rename_durably
) -> Restored:
    """Put a backup in the place of the store, which is kept beside it.

    At any moment there is a whole store. Raises StoreOpenError, also if the store is in use.
    """
    check(backup)
    lock = StoreLock(path)
    try:
        fresh = sibling(path, ".restored")
        fresh.unlink(missing_ok=True)
        nodes = write_backup(backup, fresh)
        inherit_owner(fresh, path)
        stamp.remove(path)
        kept = _keep_previous(path)
        rename_durably(fresh, path)
    except OSError as error:
        raise StoreOpenError(f"{path} cannot be replaced: {error}") from error
    finally:
        lock.release()
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
