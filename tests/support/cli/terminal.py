"""The command `rollcall` at a terminal."""

import os
import pty
from collections.abc import Mapping
from pathlib import Path
from select import select

from tests.support.cli.command import Rollcall
from tests.support.forks import start_program

LOOK_SECONDS = 0.02
SECONDS = 60


def at_terminal(
    rollcall: Rollcall, *arguments: str, typed: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command at a terminal; return its exit status and all that the terminal showed.

    ``typed`` has the line that is typed after each prompt.
    """
    ours, theirs = pty.openpty()
    line = Path(os.ttyname(theirs))
    process = start_program(
        ["rollcall", *arguments],
        stdin=line,
        stdout=line,
        stderr=line,
        environment={**os.environ, "TERM": "xterm", **rollcall.environment},
    )
    shown = b""
    try:
        while True:
            has_ended = process.poll() is not None  # to be known before the terminal is read
            piece = os.read(ours, 4096) if select([ours], [], [], LOOK_SECONDS)[0] else b""
            if has_ended and not piece:
                return process.wait(SECONDS), shown.decode()
            shown += piece
            for prompt, answer in (typed or {}).items():
                if piece and shown.endswith(prompt.encode()):
                    os.write(ours, f"{answer}\n".encode())
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)
