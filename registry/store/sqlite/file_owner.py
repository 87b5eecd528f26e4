"""The owner of files that root creates for the registry's user."""

import os
from contextlib import suppress
from pathlib import Path

ROOT = 0


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
