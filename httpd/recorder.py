"""Metrics and access log of answered requests, for the middleware and the lane alike."""

from httpd.access_log import AccessLog, Answered
from httpd.metrics import RequestMetrics


class RequestRecorder:
    """Counts answered requests and writes them to the access log."""

    def __init__(self, *, metrics: RequestMetrics, access_log: AccessLog) -> None:
        self.count = metrics.observe
        self.writes_quiet_requests = access_log.is_verbose
        self._access_log = access_log

    def record(self, answered: Answered, seconds: float) -> None:
        """Count a request that took so long to answer, and write it to the access log."""
        self.count(answered.route, answered.method, answered.status, seconds)
        self._access_log.write(answered, seconds)
