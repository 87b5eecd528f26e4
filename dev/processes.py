"""Starts and ends the processes that `make run` and `make test` need."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO


def start(command: Sequence[str | Path], *, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, which Ctrl-C in the terminal does not reach.

    If this process is killed, the program gets SIGTERM (if util-linux is installed).
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
    """Send SIGTERM, and SIGKILL after ``within`` seconds; return whether SIGTERM was enough."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def describe_exit(status: int) -> str:
    """Describe a return code of subprocess, such as ``ended with status 1``."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def with_network(command: Sequence[str]) -> list[str]:
    """Return a command that runs this one in the network and mounts that the tests began in.

    An isolated worker has no network but its own loopback, and no certificate authorities. The
    command begins in the folder ``/``.
    """
    if "ROLLCALL_ISOLATED" not in os.environ:
        return list(command)
    opened = f"/proc/{os.getpid()}/fd"
    authorities = os.environ.get("ROLLCALL_SSL_CERT_FILE")
    environment = f"SSL_CERT_FILE={authorities}" if authorities else "--unset=SSL_CERT_FILE"
    return ["env", environment, "nsenter", f"--net={opened}/8", f"--mount={opened}/9", *command]


def user_name() -> str:
    """Return the name of the user who runs this."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
