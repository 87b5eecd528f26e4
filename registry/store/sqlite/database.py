"""The file of the SQLite store: locking it, opening it, and what is beside it."""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import quote

from httpd.write_ahead_log import connect_with_log, is_for_lack_of_room
from registry.errors import StoreOpenError
from registry.store.files import sibling

APPLICATION_ID = 0x524F4C4C
ROOT = 0
MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
APPLICATION_ID_BYTES = slice(68, 72)
REMEDY = (
    "it is left as it is; restore a backup (rollcall-registry restore FILE), or move the file away"
    " together with those beside it that end in -wal and -shm: then hosts are known again as soon"
    " as they report"
)
NOT_PERMITTED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")

# The device and the number of the file of a store, and of that of its log.
Files: TypeAlias = tuple[tuple[int, int] | None, tuple[int, int] | None]


class StoreInUse(StoreOpenError):
    """Another process uses the store."""


class StoreLock:
    """Keeps other processes from the store. The kernel releases it when the process ends."""

    def __init__(self, path: Path) -> None:
        lock = sibling(path, ".lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self._file: IO[str] = os.fdopen(descriptor, "w")
            inherit_owner(lock, path)
        except FileNotFoundError as error:
            raise StoreOpenError(
                f"{path} cannot be written: the directory {path.parent} does not exist; make it,"
                " for the user that runs the registry, or name another file as `store`"
            ) from error
        except OSError as error:
            raise StoreOpenError(f"{lock} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StoreInUse(
                f"{path} is in use by another process, such as a registry: stop it first"
            ) from error

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def inherit_owner(file: Path, store: Path) -> None:
    """Set the owner of a file that root created to that of the store, or else its directory."""
    if os.geteuid() != ROOT:
        return
    for example in (store, store.parent):
        owner = example.stat() if example.exists() else None
        if owner is not None and owner.st_uid != ROOT:
            with suppress(PermissionError):  # root without CAP_CHOWN
                os.chown(file, owner.st_uid, owner.st_gid, follow_symlinks=False)
            return


def files_of(path: Path) -> Files:
    """Return which file a store and its log are now; None for one that is not there."""
    return _file_at(path), _file_at(sibling(path, "-wal"))


def _file_at(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, *, mode: str) -> sqlite3.Connection:
    """Open a file that exists; `mode` is ro or rw. The caller handles sqlite3.Error."""
    return _connect(f"file:{quote(str(path))}?mode={mode}")


def connect_locked(path: Path) -> sqlite3.Connection:
    """Open a locked file for reading, without creating files beside it."""
    if sibling(path, "-wal").exists():
        modes = (partial(connect, path, mode=mode) for mode in ("ro", "rw"))
        return connect_with_log(*modes)[0]
    return _connect(f"file:{quote(str(path))}?mode=ro&immutable=1")


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=2.0,
        isolation_level=None,
        check_same_thread=False,
    )
    # Temporary files may have no place: in a container that is read-only but for its data.
    connection.execute("PRAGMA temp_store = MEMORY").close()
    return connection


def check_header(path: Path) -> None:
    """Raise StoreOpenError if a file is no store of a registry.

    Its schema version is not to be read from here: the newest may be in the log.
    """
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise StoreOpenError(f"{path} cannot be read: {error.strerror}") from error
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise StoreOpenError(f"{path} is not a SQLite database; {REMEDY}")
    if int.from_bytes(header[APPLICATION_ID_BYTES], "big") != APPLICATION_ID:
        raise StoreOpenError(
            f"{path} is a database of another program; it is left as it is:"
            " name another file as `store`"
        )


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Raise StoreOpenError for an error of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        raise open_error(path, error) from error


def open_error(path: Path, error: sqlite3.Error) -> StoreOpenError:
    """Return the error of a store, with what helps: only a damaged file is to be replaced."""
    name = error_name(error)
    if name.startswith("SQLITE_BUSY"):
        return StoreInUse(f"{path} is locked by another process")
    if is_for_lack_of_room(error, path.parent):
        return StoreOpenError(f"{path} cannot be used: the disk is full; make room")
    if name.startswith(NOT_PERMITTED):
        return StoreOpenError(
            f"{path} cannot be used: {error}; the user that runs the registry must be able to write"
            f" the file, those beside it that end in -wal and -shm, and {path.parent}"
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreOpenError(
            f"{path} cannot be used: {error}; it is left as it is: the file may be sound, look at"
            " the kernel's messages about the disk (dmesg)"
        )
    return StoreOpenError(f"{path} cannot be used: {error}; {REMEDY}")


def error_name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error; errors of Python's sqlite3 itself have none."""
    return getattr(error, "sqlite_errorname", "")


def check_no_orphaned_wal(path: Path) -> None:
    """Raise StoreOpenError if there is a log without a store: a new store would take it over."""
    wal = sibling(path, "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        raise StoreOpenError(
            f"{path} does not exist, but its log {wal} does, and may hold changes that are nowhere"
            f" else; put {path} back beside it, or move {wal} away too"
        )
