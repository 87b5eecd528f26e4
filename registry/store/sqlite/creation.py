"""A new SQLite store."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from httpd.host_metrics.write_ahead_log import is_full
from registry.errors import StoreOpenError
from registry.store.files.durable import rename_durably
from registry.store.protocol import Row
from registry.store.sqlite import stamp
from registry.store.sqlite.database import check_no_orphaned_wal, connect
from registry.store.sqlite.file_owner import inherit_owner
from registry.store.sqlite.schema import make


def create(path: Path, rows: Sequence[Row] = ()) -> None:
    """Create a store of these nodes, whole or not at all. Raises StoreOpenError."""
    check_no_orphaned_wal(path)
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        stamp.remove(path)  # left over from a store that is gone
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        inherit_owner(draft, path)
        with closing(connect(draft, mode="rw")) as connection:
            make(connection, rows)
            connection.execute("PRAGMA journal_mode = WAL")
        rename_durably(draft, path)
    except (OSError, sqlite3.Error) as error:
        draft.unlink(missing_ok=True)
        why = "the disk is full; make room" if is_full(path.parent) else error
        raise StoreOpenError(f"{path} cannot be made: {why}") from error
