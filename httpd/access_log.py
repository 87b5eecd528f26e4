"""One line for each change, refusal and failure; never so many that the log is the outage."""

import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.auth import CALLER, SAFE_METHODS

LINES_PER_SECOND = 10
QUIET = web.RequestKey("quiet", bool)


def logs_every_request(log: FilteringBoundLogger) -> bool:
    """Tell whether reads and quiet requests have their line in the log, too."""
    return log.is_enabled_for(logging.DEBUG)


class AccessLog:
    """Tells who did what, from where, and how it ended.

    Reads are debug lines, and so is a request that its handler marked with ``QUIET`` (a heartbeat
    that changed nothing). Of each status at most ten lines a second are written; the next line
    that is written says how many were not.
    """

    def __init__(
        self, log: FilteringBoundLogger, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log.bind()  # a lazy logger would look itself up for each line
        self._monotonic = monotonic
        self._verbose = logs_every_request(log)
        self._windows: dict[int, _Window] = {}

    def write(
        self, request: web.Request, status: int, *, seconds: float, reason: str | None
    ) -> None:
        """Write the line of an answered request; ``reason`` is why it was refused."""
        quiet = status < HTTPStatus.BAD_REQUEST and (
            request.method in SAFE_METHODS or QUIET in request
        )
        if quiet and not self._verbose:
            return
        window = self._windows.setdefault(status, _Window())
        if not window.admits(self._monotonic()):
            return
        caller = request.get(CALLER)
        details: dict[str, object] = {
            "caller": caller.name if caller else None,
            "remote": request.remote,
            "method": request.method,
            # As it was sent: percent-encoded, so without line breaks or escapes.
            "path": request.rel_url.raw_path[:512],
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
        }
        if reason:
            details["reason"] = reason
        suppressed = window.take_suppressed()
        if suppressed:
            details["suppressed"] = suppressed
        self._level(status, quiet=quiet)("request", **details)

    def _level(self, status: int, *, quiet: bool) -> Callable[..., None]:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return self._log.warning
        return self._log.debug if quiet else self._log.info


class _Window:
    """How many lines of one status were written in the present second."""

    def __init__(self) -> None:
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def admits(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._suppressed += 1
            return False
        return True

    def take_suppressed(self) -> int:
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
