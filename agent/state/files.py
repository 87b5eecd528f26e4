"""Files of the agent's state: small, and there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, durable: bool) -> None:
    """Put content in place of the file, readable by its owner alone.

    Whoever reads sees the old content or the new. ``durable`` makes it survive a power cut from
    the return on.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        _sync_directory(path.parent)


def open_private(path: Path, flags: int) -> int:
    """Open or make a file that its owner alone can read; give the descriptor.

    What root makes here, with ``deregister``, belongs to the folder's owner: the daemon, which
    runs as a user of its own, has to go on with it.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    owner = path.parent.stat()
    if os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner.st_uid:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
