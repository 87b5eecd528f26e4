"""TLS with scheduled handshakes: the only file that uses private names of asyncio.

If a Python version lacks one of them, `missing_names` returns it, and the listener uses asyncio's
own TLS.
"""

import asyncio
import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from httpd.server.handshakes import HandshakeScheduler

if TYPE_CHECKING:
    from asyncio.sslproto import SSLProtocol
else:
    try:
        SSLProtocol = import_module("asyncio.sslproto").SSLProtocol
    except (ImportError, AttributeError):
        SSLProtocol = asyncio.BufferedProtocol

__all__ = ["RAW_TRANSPORT", "SSLProtocol", "TlsProtocol", "missing_names"]

# The extra info of a TLS transport that holds the raw one below it; asyncio has none for it.
RAW_TRANSPORT = "transport_below"
PRIVATE_NAMES = (
    "max_size",
    "_extra",
    "_outgoing",
    "_write_buffer_size",
    "_get_write_buffer_size",
    "_get_extra_info",
)


def missing_names(protocol: Any = SSLProtocol) -> list[str]:
    """Return the private names that `TlsProtocol` needs and this base class does not have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    loop = asyncio.get_running_loop()
    try:
        made = protocol(
            loop, asyncio.Protocol(), context, None, server_side=True, ssl_handshake_timeout=1
        )
    except TypeError:
        return ["__init__"]
    missing = [name for name in PRIVATE_NAMES if not hasattr(made, name)]
    made.connection_lost(None)  # without this, its transport warns that it was not closed
    return missing


class TlsProtocol(SSLProtocol):
    """The TLS of one connection, below its HttpConnection.

    asyncio's own class allocates a read buffer of 256 KiB for each connection: gigabytes for a
    fleet in which each host keeps one open. A TLS record has at most 16 KiB. It also carries out
    all handshakes that arrive at once before it serves other connections.
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
            cast("asyncio.Protocol", protocol),  # a BufferedProtocol works as well
            context,
            cast("asyncio.Future[None]", None),  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("int", handshakes.timeout_seconds),  # a float works as well
        )
        self._handshakes = handshakes
        self._half_done = False
        self._established = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's hello, or abort if there are too many handshakes."""
        self._raw_transport = self._extra[RAW_TRANSPORT] = cast("asyncio.Transport", transport)
        self._raw_transport.set_write_buffer_limits(high=0)
        if self._handshakes.begin(self):
            super().connection_made(transport)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the handshake as failed if it is not done."""
        self._handshakes.end(self, "failed")
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """Close the transport when the client disconnects without close_notify.

        The return value of asyncio's own method would keep it open while reading is paused, and
        each response to it would be dropped with a warning.
        """
        super().eof_received()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _get_write_buffer_size(self) -> int:
        # asyncio's own leaves out what is encrypted and not yet sent. It would wait without end for
        # up to 64 KiB that a client does not read.
        raw_unsent = (
            self._raw_transport.get_write_buffer_size() if self._raw_transport is not None else 0
        )
        return self._outgoing.pending + self._write_buffer_size + raw_unsent

    def buffer_updated(self, nbytes: int) -> None:
        """Process what was read; during the handshake, schedule a step and pause reading."""
        if self._established:
            super().buffer_updated(nbytes)
        elif self._raw_transport is not None:
            self._received = nbytes
            self._raw_transport.pause_reading()
            self._handshakes.schedule_step(self, half_done=self._half_done)

    def step(self) -> None:
        """Continue the handshake with the bytes that the client sent."""
        if self._raw_transport is None or self._raw_transport.is_closing():
            return
        self._half_done = True
        self._raw_transport.resume_reading()
        super().buffer_updated(self._received)
        if self._get_extra_info("cipher") is not None:
            self._established = True
            self._handshakes.end(self, "done")
