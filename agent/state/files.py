"""Files in the agent's state directory: replaced atomically, readable by their owner alone.

The text of each error names the file or directory.
"""

import os
from pathlib import Path


class StateError(Exception):
    """The state cannot be used."""


class StateInUse(StateError):
    """Another agent uses this state directory."""


class StateUnusable(StateError):
    """The state directory cannot be created or written."""


class IdentityError(StateError):
    """The identity cannot be read or written."""


def write_atomically(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace a file's content; readers see either the old content or the new.

    With ``durable`` the new content is synced to the disk before this returns. Raises OSError.
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
        sync_directory(path.parent)


def open_private(path: Path, flags: int) -> int:
    """Open or create a file with mode 0600 and return its descriptor. Raises OSError.

    The file gets the owner of its directory. ``deregister`` may be run by root, and the daemon,
    which runs as another user, must be able to use the files that this creates.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    owner = path.parent.stat()
    if os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner.st_uid:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def sync_directory(path: Path) -> None:
    """Sync the names of the files in a directory to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
