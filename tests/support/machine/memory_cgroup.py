"""A cgroup that bounds what a process may take, as MemoryMax of a unit does."""

from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path
from typing import Self

import pytest

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
UNITS = Path(__file__).parents[3] / "systemd"
FACTORS = {"M": 1024**2, "G": 1024**3}


class MemoryCgroup:
    """A cgroup of version 1 or 2, as long as the context is open. Skips where it cannot be made."""

    def __init__(self, name: str, *, limit: int) -> None:
        self._is_v1 = V1.is_dir()
        self._folder = (V1 if self._is_v1 else V2) / name
        self._limit = limit

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir()
            limit = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
            self._file(limit).write_text(str(self._limit))
        except OSError as error:
            if self._folder.is_dir():
                self._folder.rmdir()
            pytest.skip(f"needs a cgroup for memory that can be written: {error.strerror}")
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.rmdir()

    def prefix(self) -> Sequence[str]:
        """Return what begins a command that runs in the cgroup."""
        return "sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._file("cgroup.procs"))

    def holds(self, pid: int) -> bool:
        """Return whether a process is in the cgroup."""
        return str(pid) in self._file("cgroup.procs").read_text().split()

    def kills(self) -> int:
        """Return how many processes were killed as there was no more memory for them."""
        text = self._file("memory.oom_control" if self._is_v1 else "memory.events").read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def _file(self, name: str) -> Path:
        return self._folder / name


def memory_max(daemon: str) -> int:
    """Return the bytes that the unit of a daemon allows: `registry` or `agent`."""
    unit = ConfigParser(strict=False, interpolation=None)
    unit.read(UNITS / f"rollcall-{daemon}.service")
    allowed = unit["Service"]["MemoryMax"]
    return int(allowed[:-1]) * FACTORS[allowed[-1]]
