"""A copy of the database, which may be in use."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from agent.state.files import sync_directory
from agent.state.store import APPLICATION_ID, StoreUnusable

TIMEOUT_SECONDS = 5.0


def back_up(path: Path, target: Path) -> int:
    """Write a consistent copy to a new file, whole or not at all; return the number of apps.

    Raises:
        StoreUnusable: there is no database, it is damaged, or the file exists or cannot be written.

    """
    if target.exists():
        raise StoreUnusable(f"{target} exists; a backup replaces nothing")
    if not path.exists():
        raise StoreUnusable(f"{path} does not exist")
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        with closing(_connect(path, "ro")) as source, closing(_connect(draft, "rw")) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without its log beside it
            apps = _check(path, copy)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.rename(target)
        sync_directory(target.parent)
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"{path} cannot be copied to {target}: {error}") from error
    except OSError as error:
        raise StoreUnusable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        for each in (draft, draft.with_name(f"{draft.name}-journal")):
            each.unlink(missing_ok=True)
    return apps


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=TIMEOUT_SECONDS)


def _check(path: Path, copy: sqlite3.Connection) -> int:
    if copy.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise StoreUnusable(f"{path} is no database of an agent")
    if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("its pages contradict each other")
    (apps,) = copy.execute("SELECT count(*) FROM apps").fetchone()
    return int(apps)
