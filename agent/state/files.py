"""Files in the agent's state directory: replaced atomically, readable by their owner alone.

The text of each error names the file or directory.
"""

import os
from pathlib import Path

from runtime.durable import replacing


class StateError(Exception):
    """The state cannot be used."""


class StateInUse(StateError):
    """Another agent uses this state directory."""


class StateUnusable(StateError):
    """The state directory cannot be created or written."""


class IdentityError(StateError):
    """The identity cannot be read or written."""


def write_private(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace a file's content; readers see either the old content or the new.

    With ``durable`` the new content is on the disk before this returns. Raises OSError.
    """
    with replacing(path, durable=durable) as file:
        _give_to_owner_of(path.parent, file.fileno())
        file.write(content)


def open_private(path: Path, flags: int) -> int:
    """Open or create a file with mode 0600 and return its descriptor. Raises OSError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _give_to_owner_of(path.parent, descriptor)
    return descriptor


def _give_to_owner_of(folder: Path, descriptor: int) -> None:
    """Give a file to the owner of its folder.

    ``deregister`` may be run by root, and the daemon, which runs as another user, must be able to
    use the files that it creates.
    """
    owner = folder.stat()
    if os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner.st_uid:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
