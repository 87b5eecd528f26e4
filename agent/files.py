"""Small files that are there whole or not at all."""

import os
from pathlib import Path


def write_whole(path: Path, content: bytes, *, durable: bool) -> None:
    """Put content in place of the file, readable by its owner alone.

    Whoever reads sees the old content or the new. ``durable`` makes it survive a power cut from
    the return on.
    """
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
