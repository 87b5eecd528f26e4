"""How much memory a process takes."""

from pathlib import Path

from tests.support.daemons import Daemon

MEBIBYTE = 1024 * 1024


def resident(daemon: Daemon) -> int:
    """Return a daemon's memory in bytes."""
    return _status(daemon, "VmRSS")


def peak(daemon: Daemon) -> int:
    """Return the most memory that a daemon has had since `reset_peak`, in bytes."""
    return _status(daemon, "VmHWM")


def reset_peak(daemon: Daemon) -> None:
    """Forget how much memory a daemon has had."""
    Path(f"/proc/{daemon.pid}/clear_refs").write_text("5", "ascii")


def _status(daemon: Daemon, name: str) -> int:
    text = Path(f"/proc/{daemon.pid}/status").read_text("ascii")
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024
