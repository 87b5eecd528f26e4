"""TLS whose handshakes take turns: all that this program knows of what asyncio keeps private.

Where a Python has other names, `missing_names` says which, and the listener uses asyncio's own TLS.
"""

import asyncio
import ssl
from collections import OrderedDict
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from structlog.typing import FilteringBoundLogger

from httpd.access_log import LineLimit
from httpd.server.limits import RESERVED_DESCRIPTORS, ConnectionLimiter

if TYPE_CHECKING:
    from asyncio.sslproto import SSLProtocol
else:
    try:
        SSLProtocol = import_module("asyncio.sslproto").SSLProtocol
    except (ImportError, AttributeError):
        SSLProtocol = asyncio.BufferedProtocol

__all__ = ["RAW_TRANSPORT", "SSLProtocol", "TlsProtocol", "missing_names"]

# Descriptors for clients that are rejected: over TLS, even the rejection takes a handshake.
REJECTION_DESCRIPTORS = RESERVED_DESCRIPTORS // 2
# More than are done within their time limit; each takes 66 KiB.
MAX_HANDSHAKES = 4096
# The extra information of a TLS transport that holds the transport below it.
RAW_TRANSPORT = "transport_below"
PRIVATE_NAMES = (
    "max_size",
    "_extra",
    "_outgoing",
    "_write_buffer_size",
    "_get_write_buffer_size",
    "_get_extra_info",
    "_on_handshake_complete",
)
# Of OpenSSL: X509_V_ERR_CERT_NOT_YET_VALID and its siblings.
REJECTIONS = {
    9: "it is not valid yet, by the clock of this host",
    10: "it has expired",
    18: "it is of an unknown CA: itself",
    19: "it is of an unknown CA",
    20: "it is of an unknown CA",
    21: "it is of an unknown CA",
}
NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class HandshakeScheduler:
    """Decides which handshake has its next step.

    A step costs as much as dozens of requests, so each pass of the event loop runs a few at most,
    and connected clients are answered in between. With more clients than there is time for,
    handshakes that have begun go first, then the newest. The oldest are the next to give up, and
    work on them would be lost: in order of arrival, all would give up.
    """

    def __init__(
        self,
        limiter: ConnectionLimiter,
        *,
        loop: asyncio.AbstractEventLoop,
        log: FilteringBoundLogger,
    ) -> None:
        self.timeout_seconds = limiter.timeouts.handshake
        self._limiter = limiter
        self._loop = loop
        self._in_progress: OrderedDict[TlsProtocol, None] = OrderedDict()
        self._new: dict[TlsProtocol, None] = {}
        self._half_done: dict[TlsProtocol, None] = {}
        self._running = False
        self._log = log
        self._lines = LineLimit()

    def begin(self, handshake: "TlsProtocol") -> bool:
        """Register a handshake; return False when there are too many clients even to reject one.

        If there are too many, the oldest handshake gives its place to the newest.
        """
        free = self._limiter.max_connections + REJECTION_DESCRIPTORS - self._limiter.connected
        if len(self._in_progress) >= min(free, MAX_HANDSHAKES) and not self._make_room():
            self._limiter.metrics.connections_rejected.inc()
            return False
        self._in_progress[handshake] = None
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        return True

    def _make_room(self) -> bool:
        if not self._in_progress:
            return False
        oldest = next(iter(self._in_progress))
        self.end(oldest, "failed")
        self._limiter.metrics.connections_cut_off.labels("room").inc()
        oldest.abort()
        return True

    def schedule_step(self, handshake: "TlsProtocol", *, half_done: bool) -> None:
        """Run a step of the handshake when it is its turn."""
        waiting = self._half_done if half_done else self._new
        waiting[handshake] = None
        if not self._running:
            self._running = True
            self._loop.call_soon(self._run_pending)

    def certificate_rejected(self, address: str, reason: str) -> None:
        """Write a line about a client whose certificate is rejected, at a limited rate."""
        if self._lines.admits(self._loop.time()):
            suppressed = self._lines.take_suppressed()
            details = {"suppressed": suppressed} if suppressed else {}
            self._log.info("client certificate rejected", remote=address, reason=reason, **details)

    def end(self, handshake: "TlsProtocol", outcome: str) -> None:
        """Unregister a handshake with its outcome, ``done`` or ``failed``; once is enough."""
        if handshake not in self._in_progress:
            return
        del self._in_progress[handshake]
        self._half_done.pop(handshake, None)
        self._new.pop(handshake, None)
        self._limiter.metrics.handshakes.set(len(self._in_progress))
        self._limiter.metrics.handshakes_ended.labels(outcome).inc()

    def close(self) -> None:
        """Abort all handshakes that are not done."""
        for handshake in self._in_progress:
            handshake.abort()

    def _run_pending(self) -> None:
        waiting = self._half_done or self._new
        self._running = bool(waiting)
        if not waiting:
            return
        self._loop.call_soon(self._run_pending)
        deadline = self._loop.time() + self._limiter.timeouts.handshake_budget
        while waiting:
            handshake, _ = waiting.popitem()
            handshake.step()
            if self._loop.time() >= deadline:
                return
            waiting = self._half_done or self._new


def missing_names(protocol: Any = SSLProtocol) -> list[str]:
    """Return the private names which `TlsProtocol` needs and this base class does not have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    loop = asyncio.get_running_loop()
    try:
        made = protocol(
            loop, asyncio.Protocol(), context, None, server_side=True, ssl_handshake_timeout=1
        )
    except TypeError:
        return ["__init__"]
    missing = [name for name in PRIVATE_NAMES if not hasattr(made, name)]
    made.connection_lost(None)  # it was never connected; without this, its transport complains
    return missing


class TlsProtocol(SSLProtocol):
    """TLS for one client, between the transport and the connection.

    asyncio's class keeps a read buffer of 256 KiB for each connection, which is gigabytes for a
    fleet; a TLS record has at most 16 KiB. And it runs every handshake as soon as its bytes arrive,
    before any other client is served.
    """

    max_size = 16 * 1024

    _raw_transport: asyncio.Transport | None = None
    _outgoing: ssl.MemoryBIO

    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        *,
        context: ssl.SSLContext,
        handshakes: HandshakeScheduler,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            loop,
            cast("asyncio.Protocol", protocol),  # a BufferedProtocol will do as well
            context,
            cast("asyncio.Future[None]", None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("int", handshakes.timeout_seconds),  # any number will do
        )
        self._handshakes = handshakes
        self._half_done = False
        self._established = self._rejected = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's first bytes, unless there are too many clients."""
        self._raw_transport = self._extra[RAW_TRANSPORT] = cast("asyncio.Transport", transport)
        self._raw_transport.set_write_buffer_limits(high=0)
        if self._handshakes.begin(self):
            super().connection_made(transport)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the handshake as failed if it was not done."""
        self._handshakes.end(self, "failed")
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Close the connection of a client that leaves without TLS's closing message.

        asyncio's class keeps it open while nothing is read, and drops each response with a warning.
        """
        super().eof_received()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _get_write_buffer_size(self) -> int:
        # asyncio's class leaves out what is encrypted and not sent: up to 64 KiB that a client may
        # never take, or all of a response that is taken slowly.
        raw_unsent = (
            self._raw_transport.get_write_buffer_size() if self._raw_transport is not None else 0
        )
        return self._outgoing.pending + self._write_buffer_size + raw_unsent

    def buffer_updated(self, nbytes: int) -> None:
        """Read application data; bytes of the handshake wait for their turn."""
        if self._established:
            super().buffer_updated(nbytes)
        elif self._rejected:
            return  # what the client sent before it has read why
        elif self._raw_transport is not None:
            self._received = nbytes
            self._raw_transport.pause_reading()
            self._handshakes.schedule_step(self, half_done=self._half_done)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        """Let a client whose certificate is rejected read why, and write it to the log.

        asyncio's class closes the connection at once, without the alert that OpenSSL has made. With
        TLS 1.3 the client has sent its request by then, and would see a reset. So the connection is
        closed by the client, or at the end of the time for handshakes.
        """
        reason = None if self._rejected else _rejection(handshake_exc)
        if reason is None or self._raw_transport is None:
            super()._on_handshake_complete(handshake_exc)
            return
        self._rejected = True
        peername = self._raw_transport.get_extra_info("peername")
        address = str(peername[0]) if isinstance(peername, tuple) else "-"
        self._handshakes.certificate_rejected(address, reason)
        self._raw_transport.write(self._outgoing.read())
        self._raw_transport.write_eof()

    def step(self) -> None:
        """Process what the client has sent of its handshake."""
        if self._raw_transport is None or self._raw_transport.is_closing():
            return
        self._half_done = True
        self._raw_transport.resume_reading()
        super().buffer_updated(self._received)
        if self._get_extra_info("cipher") is not None:
            self._established = True
            self._handshakes.end(self, "done")


def _rejection(error: BaseException | None) -> str | None:
    """Return why a handshake has failed if it is for the client's certificate, else None."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return REJECTIONS.get(error.verify_code, error.verify_message)
    is_missing = isinstance(error, ssl.SSLError) and error.reason == NO_CERTIFICATE
    return "the client shows none" if is_missing else None
