"""Whom a listener lets in, and for how long."""

from dataclasses import dataclass

from httpd.instant import Instant
from httpd.metrics import RequestMetrics


@dataclass(frozen=True)
class Timeouts:
    """How long a client may take, in seconds.

    ``idle`` is for the next request to begin (longer than a heartbeat, so that agents keep their
    connection), ``header`` for its headers to be complete, ``stall`` for it to take anything of an
    answer, ``linger`` for the rest of a body that was refused, ``handshake`` for TLS to be agreed
    upon. All that are at it together keep nobody waiting for longer than ``handshake_budget``.
    """

    idle: float = 75.0
    header: float = 10.0
    stall: float = 30.0
    linger: float = 2.0
    handshake: float = 5.0
    handshake_budget: float = 0.005


@dataclass
class ConnectionLimiter:
    """What the connections of one listener have in common.

    Attributes:
        limit: how many there may be.
        connected: how many there are.

    """

    max_connections: int
    metrics: RequestMetrics
    timeouts: Timeouts
    instant: Instant | None = None
    connected: int = 0

    def acquire(self) -> bool:
        """Count a connection in; False when there are too many."""
        if self.connected >= self.max_connections:
            self.metrics.connections_refused.inc()
            return False
        self.connected += 1
        self.metrics.connections.set(self.connected)
        return True

    def release(self) -> None:
        """Count a connection out."""
        self.connected -= 1
        self.metrics.connections.set(self.connected)
