"""What tests need of the machine: programs, root, the network."""

import os
import shutil
from collections.abc import Sequence

import pytest


def with_network(command: Sequence[str]) -> list[str]:
    """Return a command that runs this one in the network and mounts that the tests began in.

    An isolated worker has no network but its own loopback.

    It begins in the folder ``/`` (see dev/shell/isolated.sh).
    """
    if "ROLLCALL_ISOLATED" not in os.environ:
        return list(command)
    opened = f"/proc/{os.getpid()}/fd"
    return ["nsenter", f"--net={opened}/8", f"--mount={opened}/9", *command]


def need(program: str) -> None:
    """Skip the test unless the program is here."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}, which is not installed")


def need_root() -> None:
    """Skip the test unless it runs as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
