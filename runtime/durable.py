"""Files that readers find as they were or as they are to be, also after a loss of power."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE_MODE = 0o600


@contextmanager
def new_file(path: Path, *, mode: int = PRIVATE_MODE, durable: bool = True) -> Iterator[Path]:
    """Yield an empty draft of a file, which gets the name ``path`` if nothing fails.

    With ``durable`` it is on the disk by then. Raises OSError; ``path`` is as it was then.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed
        # What somebody else puts there meanwhile, such as a link, is an error.
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield draft
        if durable:
            rename_durably(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
