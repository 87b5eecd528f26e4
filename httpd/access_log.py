"""The access log: a line for each change, rejection and failure, at a limited rate."""

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.auth import CALLER, SAFE_METHODS
from httpd.clients import client_address
from httpd.metrics import RequestMetrics

LINES_PER_SECOND = 10
MAX_LOGGED_PATH = 512
# The route of a path that does not exist.
UNMATCHED = "unmatched"
# Monitoring polls it. That the daemon cannot serve has log lines of its own.
HEALTH = "/healthz"
# Marks heartbeats and deletions of nodes, which the audit log records.
QUIET = web.RequestKey("quiet", bool)


class Answered(NamedTuple):
    """An answered request.

    ``route`` is the path's pattern, ``path`` the path as it was sent, ``caller`` the name of the
    key, ``remote`` the client's address. ``quiet`` requests have a line only where they failed or
    the log level is debug. ``reason`` is why the request was rejected.
    """

    route: str
    method: str
    path: str
    status: int
    caller: str | None
    remote: str | None
    quiet: bool = False
    reason: str | None = None


def answered(request: web.Request, status: int, reason: str | None = None) -> Answered:
    """Return what is recorded of a request that was answered with this status."""
    resource = request.match_info.route.resource
    caller = request.get(CALLER)
    return Answered(
        route=resource.canonical if resource else UNMATCHED,
        method=request.method,
        # As it was sent: percent-encoded, so without line breaks or escapes.
        path=request.rel_url.raw_path,
        status=status,
        caller=caller.name if caller else None,
        remote=client_address(request),
        quiet=request.method in SAFE_METHODS or QUIET in request,
        reason=reason,
    )


class AccessLog:
    """Counts and logs requests: the caller, its address, the path and the status of the answer.

    Reads are debug lines, and so are requests that their handlers marked with ``QUIET``, unless
    they fail. A 503 of /healthz is a debug line, too. At most ten lines a second are written for
    each status; the next line gives the number of those that were suppressed.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        metrics: RequestMetrics,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log.bind()  # a lazy logger would look itself up for each line
        self.count = metrics.observe
        self._monotonic = monotonic
        self.is_verbose = log.is_enabled_for(logging.DEBUG)
        self._windows: dict[int, LineLimit] = {}

    def record(self, answered: Answered, seconds: float) -> None:
        """Count a request that was answered after this many seconds, and write its line."""
        status = answered.status
        self.count(answered.route, answered.method, status, seconds)
        polled = answered.route == HEALTH and status == HTTPStatus.SERVICE_UNAVAILABLE
        quiet = polled or (answered.quiet and status < HTTPStatus.BAD_REQUEST)
        if quiet and not self.is_verbose:
            return
        window = self._windows.setdefault(status, LineLimit())
        if not window.admits(self._monotonic()):
            return
        details: dict[str, object] = {
            "caller": answered.caller,
            "remote": answered.remote,
            "method": answered.method,
            "path": answered.path[:MAX_LOGGED_PATH],
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
        }
        if answered.reason:
            details["reason"] = answered.reason
        suppressed = window.take_suppressed()
        if suppressed:
            details["suppressed"] = suppressed
        self._level(status, quiet=quiet)("request", **details)

    def _level(self, status: int, *, quiet: bool) -> Callable[..., None]:
        if quiet:
            return self._log.debug
        return self._log.warning if status >= HTTPStatus.INTERNAL_SERVER_ERROR else self._log.info


class LineLimit:
    """How many lines of one kind were written in the present second: at most LINES_PER_SECOND."""

    def __init__(self) -> None:
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def admits(self, now: float) -> bool:
        """Return whether one more may be written; if not, it is counted."""
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        self._lines += 1
        if self._lines > LINES_PER_SECOND:
            self._suppressed += 1
            return False
        return True

    def take_suppressed(self) -> int:
        """Return how many were not written since the last call."""
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
