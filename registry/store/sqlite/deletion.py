"""Deleting nodes from a SQLite store while no registry runs."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from registry.errors import StoreOpenError
from registry.store.sqlite.database import (
    StoreLock,
    check_header,
    check_no_orphaned_wal,
    connect,
    sqlite_errors,
)
from registry.store.sqlite.schema import check_version


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
