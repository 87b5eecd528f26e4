"""Files that readers find as they were or as they are to be, also after a loss of power."""

import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PRIVATE_MODE = 0o600


@contextmanager
def new_file(path: Path, *, mode: int = PRIVATE_MODE, durable: bool = True) -> Iterator[Path]:
    """Yield an empty draft of a file, which gets the name ``path`` if nothing fails.

    With ``durable`` it is on the disk by then. Drafts of processes that were killed are removed.
    Raises OSError; ``path`` is as it was then.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    remove_abandoned(path)
    try:
        locked = _locked(draft, mode)
        try:
            yield draft
            if durable:
                rename_durably(draft, path)
            else:
                draft.replace(path)
        finally:
            os.close(locked)
    finally:
        draft.unlink(missing_ok=True)


def _locked(draft: Path, mode: int) -> int:
    """Make a draft; return its descriptor with a lock, which the kernel releases after a kill."""
    while True:
        # What somebody else puts there meanwhile, such as a link, is an error.
        locked = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with suppress(OSError):  # a file system without locks: then nobody removes drafts
            fcntl.flock(locked, fcntl.LOCK_EX)
        if os.fstat(locked).st_nlink:  # else another process removed it before the lock
            return locked
        os.close(locked)


def remove_abandoned(path: Path) -> None:
    """Remove the drafts of a file whose processes were killed, as far as this one may."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.new"):
        if not draft.name.removeprefix(f".{path.name}.").removesuffix(".new").isdigit():
            continue  # a draft of another file
        with suppress(OSError):  # it is being written, or of another user, or gone already
            if draft.is_symlink():
                draft.unlink()
                continue
            found = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()
            finally:
                os.close(found)


@contextmanager
def replacing(path: Path, *, mode: int = PRIVATE_MODE, durable: bool = True) -> Iterator[BinaryIO]:
    """Yield a new file to write, which takes the place of ``path`` as in ``new_file``."""
    with new_file(path, mode=mode, durable=durable) as draft, draft.open("r+b") as file:
        yield file


def rename_durably(draft: Path, path: Path) -> None:
    """Rename a finished file, in the place of another one if there is one. Raises OSError."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
