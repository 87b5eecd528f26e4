"""Starting and ending the processes that `make run` and `make test` need."""

import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO


def start(command: Sequence[str | Path], *, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start a program that Ctrl-C in the terminal does not reach: it is ours to end it, in order.

    Should this process be killed, the program is told to end (where util-linux is installed).
    """
    prefix = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    return subprocess.Popen(
        [*prefix, *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], *, within: float) -> bool:
    """Ask it to end, kill it after ``within`` seconds; tell whether it ended when asked."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def describe_exit(status: int) -> str:
    """Put a process's return code into words, such as ``ended with status 1``."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
