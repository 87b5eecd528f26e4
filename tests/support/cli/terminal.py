"""The command `rollcall` at a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.cli.command import Rollcall
from tests.support.cli.process import WITH_SIGINT

TOP = Path(__file__).parents[3]


def at_terminal(
    rollcall: Rollcall, *arguments: str, typed: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command at a terminal; return its exit status and all that the terminal showed.

    ``typed`` has the line that is typed after each prompt.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*WITH_SIGINT, sys.executable, "-m", "cli.main", *arguments],
        env={**os.environ, "TERM": "xterm", "PYTHONPATH": str(TOP), **rollcall.environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
            for prompt, line in (typed or {}).items():
                if shown.endswith(prompt.encode()):
                    os.write(ours, f"{line}\n".encode())
        os.close(ours)
        return process.wait(), shown.decode()


def _read(terminal: int) -> bytes:
    """Return what comes next; nothing once the process has ended."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
