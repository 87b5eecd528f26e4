"""Mounts of a program's own: no other one that starts meanwhile has a copy of them."""

import os
import sys
from collections.abc import Sequence

_OWN = "ROLLCALL_OWN_MOUNTS"


def run_with_own_mounts(module: str, arguments: Sequence[str]) -> None:
    """Start this process anew as a module that has mounts of its own, unless it has them.

    Whatever is isolated on this machine copies the mounts of then. A disk that is unmounted here is
    in use there still, and cannot be mounted anew.
    """
    if _OWN not in os.environ:
        os.environ[_OWN] = "1"
        command = ["unshare", "--mount", "--propagation", "private", sys.executable]
        os.execvp(command[0], [*command, "-m", module, *arguments])  # noqa: S606
