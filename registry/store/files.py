"""Files that are whole or not there, also after a loss of power."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield an empty draft of a file, for its owner alone; rename it durably if nothing fails."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        yield draft
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rename_durably(draft: Path, path: Path) -> None:
    """Rename a finished file, durably."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sibling(path: Path, suffix: str) -> Path:
    """Return the path with a suffix added to its name."""
    return path.with_name(path.name + suffix)


def unused_name(path: Path) -> Path:
    """Return an unused name beside a file, for what was there before a restore."""
    for number in count(1):
        kept = sibling(path, f".before-restore{'' if number == 1 else f'.{number}'}")
        if not (kept.exists() or sibling(kept, "-wal").exists()):
            return kept
    raise AssertionError("there is always another number")
