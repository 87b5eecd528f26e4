"""Answers of the daemons in a run of the tests, which each daemon appends to one file.

An answer is appended when a daemon gives it for the first time: one in the process of a test, or
one that is forked. Daemons that are started by their console scripts append nothing.
"""

import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from httpd.metrics import RequestMetrics

DAEMONS = ("agent", "registry")
FILE = "ROLLCALL_ANSWERS"  # the variable with the path of the file


class Answer(NamedTuple):
    """An answer of a daemon; parameters in the path have no names: ``/nodes/{}``."""

    daemon: str
    method: str
    path: str
    status: int

    @property
    def text(self) -> str:
        """All of it in a line, as in the file."""
        return f"{self.daemon} {self.method} {self.path} {self.status}"


class RecordedMetrics(RequestMetrics):
    """Counts the requests of a daemon, and appends each new answer to the file of this run."""

    def __init__(self, metrics: CollectorRegistry, *, daemon: str, file: str | None) -> None:
        super().__init__(metrics)
        self._daemon = daemon
        # Opened now: a test may leave the daemon no descriptor.
        self._descriptor = None if file is None else _opened(file)
        self._recorded: set[tuple[str, str, int]] = set()

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request, and record its answer."""
        super().observe(route, method, status, seconds)
        if self._descriptor is None or (route, method, status) in self._recorded:
            return
        self._recorded.add((route, method, status))
        answer = Answer(self._daemon, method, unnamed(route), int(status))
        os.write(self._descriptor, f"{answer.text}\n".encode())


@cache
def _opened(file: str) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def recorded_metrics(daemon: str, metrics: CollectorRegistry) -> RecordedMetrics:
    """Return what counts and records the requests of a daemon in this process."""
    return RecordedMetrics(metrics, daemon=daemon, file=os.environ.get(FILE))


def record_daemon(daemon: str, file: str | None) -> None:
    """Let this process, which becomes a daemon, record its answers."""

    def record(metrics: CollectorRegistry) -> RecordedMetrics:
        return RecordedMetrics(metrics, daemon=daemon, file=file)

    vars(import_module(f"{daemon}.daemon"))[RequestMetrics.__name__] = record


def unnamed(path: str) -> str:
    """Return the path of an operation without the names of its parameters."""
    return re.sub(r"\{.*?\}", "{}", path)


def recorded(file: Path) -> set[Answer]:
    """Return what was appended to the file."""
    lines = (line.split() for line in file.read_text().splitlines())
    return {Answer(daemon, method, path, int(status)) for daemon, method, path, status in lines}
