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
from registry.store.sqlite.schema import SCHEMAS, read_uptime, read_version


def delete(path: Path, hostnames: Iterable[str]) -> list[str]:
    """Delete nodes durably, all or none; return the hostnames that were known.

    Works on a store of each schema and of any size, as no node is read. Raises StoreOpenError, also
    if the store is in use.
    """
    if not path.exists():
        check_no_orphaned_wal(path)
        raise StoreOpenError(f"{path} does not exist")
    with closing(StoreLock(path)):
        check_header(path)
        with sqlite_errors(path), closing(connect(path, mode="rw")) as connection:
            schema = SCHEMAS[read_version(path, connection, SCHEMAS) - 1]
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            uptime = read_uptime(connection, schema)
            deleted = []
            for hostname in hostnames:
                rows = [connection.execute(each, [hostname]).rowcount for each in schema.delete]
                if rows[0]:
                    deleted.append(hostname)
            connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?)", [uptime])
            connection.execute("COMMIT")
    return deleted
