"""Files that are whole or not there, also after a loss of power."""

import os
from pathlib import Path


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
