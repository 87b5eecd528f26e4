"""The way out of an isolated worker, which has no network but its own loopback."""

import os
from collections.abc import Sequence


def with_network(command: Sequence[str]) -> list[str]:
    """Return a command that runs this one in the network and mounts that the tests began in.

    It begins in the folder ``/`` (see dev/isolated.sh).
    """
    if "ROLLCALL_ISOLATED" not in os.environ:
        return list(command)
    opened = f"/proc/{os.getpid()}/fd"
    return ["nsenter", f"--net={opened}/8", f"--mount={opened}/9", *command]
