"""TLS whose handshakes take turns: all that this program knows of what asyncio keeps private.

Where a Python has other names, `missing_names` says which, and the listener uses asyncio's own TLS.
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

# What a TLS transport calls the one below it, of which asyncio says nothing.
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
    """One client's TLS, below the protocol that speaks to it.

    asyncio's own sets aside a quarter of a MiB to read into, for as long as a connection lasts:
    that is gigabytes for a fleet of which each host keeps one. A TLS record has 16 KiB. And it
    does the handshakes of all that come at once before it serves anybody else.
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
        self._established = False
        self._received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to begin, unless there are too many already."""
        self._raw_transport = self._extra[RAW_TRANSPORT] = cast("asyncio.Transport", transport)
        self._raw_transport.set_write_buffer_limits(high=0)
        if self._handshakes.begin(self):
            super().connection_made(transport)
        else:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count a handshake that came to nothing."""
        self._handshakes.end(self, "failed")
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """End with a client that leaves without a word of TLS.

        What asyncio's own returns keeps it while nothing is read, and each answer to it is dropped
        with a warning.
        """
        super().eof_received()

    def abort(self) -> None:
        """Hang up on a client that is not done."""
        if self._raw_transport is not None:
            self._raw_transport.abort()

    def _get_write_buffer_size(self) -> int:
        # asyncio's own leaves out what is encrypted and not yet sent: up to 64 KiB that nobody
        # takes, which it would wait for without end, or all of an answer that is taken slowly.
        raw_unsent = (
            self._raw_transport.get_write_buffer_size() if self._raw_transport is not None else 0
        )
        return self._outgoing.pending + self._write_buffer_size + raw_unsent

    def buffer_updated(self, nbytes: int) -> None:
        """Read; what belongs to the handshake waits for its turn, and the rest behind it."""
        if self._established:
            super().buffer_updated(nbytes)
        elif self._raw_transport is not None:
            self._received = nbytes
            self._raw_transport.pause_reading()
            self._handshakes.schedule_step(self, half_done=self._half_done)

    def step(self) -> None:
        """Take the handshake as far as it goes with what the client said."""
        if self._raw_transport is None or self._raw_transport.is_closing():
            return
        self._half_done = True
        self._raw_transport.resume_reading()
        super().buffer_updated(self._received)
        if self._get_extra_info("cipher") is not None:
            self._established = True
            self._handshakes.end(self, "done")
