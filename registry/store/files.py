"""Names of the files beside a store."""

from itertools import count
from pathlib import Path


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
