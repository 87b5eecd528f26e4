"""The listener: a socket, and the connections that it accepts."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.metrics import RequestMetrics
from httpd.middleware import MIDDLEWARE
from httpd.server.application import ApplicationServer
from httpd.server.connection import HttpConnection
from httpd.server.handshakes import HandshakeScheduler
from httpd.server.lane.lane import Endpoint, Lane
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.open_files import raise_open_file_limit
from httpd.server.responders import Responders
from httpd.server.tls import ServerTls
from httpd.server.tls_protocol import TlsProtocol, missing_names

BACKLOG = 1024
# asyncio accepts up to its backlog of connections at once, before any can be refused. If it has no
# descriptor left, it logs an error for each of the rest.
ACCEPTED_AT_ONCE = 32
DEFAULT_TIMEOUTS = Timeouts()


class ListenError(Exception):
    """The daemon cannot start; the text says why and what would help."""


class Listener:
    """Listening sockets; each connection that they accept gets an HttpConnection."""

    def __init__(
        self,
        *,
        limiter: ConnectionLimiter,
        responders: Responders,
        tls: ServerTls | None,
        log: FilteringBoundLogger,
    ) -> None:
        self._limiter = limiter
        self._responders = responders
        self._tls = tls
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._handshakes = HandshakeScheduler(limiter, loop=self._loop)
        self._servers: list[asyncio.Server] = []

    async def start(self, address: tuple[str, int], *, shared: bool = False) -> tuple[str, int]:
        """Listen; return the address, with the port that was chosen if it was 0.

        Other processes of the same user may listen on a ``shared`` address, too, if all of them
        share it: the system gives each new connection to one of them, whichever it is.

        Raises:
            ListenError: the address is in use, or not one of this machine.

        """
        try:
            server = await self._listen(address, shared=shared)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if shared and error.errno == errno.EADDRINUSE:
                reason += ", by a process that does not share it, or by another user's"
            raise ListenError(f"cannot listen on {address[0]}:{address[1]}: {reason}") from error
        self._servers.append(server)
        for listening in server.sockets:
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(BACKLOG)
        host, port = server.sockets[0].getsockname()[:2]
        self._log.info("listening", host=host, port=port, tls=self._tls is not None)
        return host, port

    def close(self) -> None:
        """Stop listening, and abort the handshakes that are not done."""
        for server in self._servers:
            server.close()
        self._handshakes.close()

    async def _listen(self, address: tuple[str, int], *, shared: bool) -> asyncio.Server:
        listen = partial(self._loop.create_server, backlog=ACCEPTED_AT_ONCE, reuse_port=shared)
        if self._tls is None:
            return await listen(self._connection, *address)
        missing = missing_names(self._tls.ssl_protocol)
        if not missing:
            return await listen(partial(self._tls_connection, self._tls.context), *address)
        self._log.warning("TLS handshakes take no turns: this Python is not known", missing=missing)
        return await listen(
            self._connection,
            *address,
            ssl=self._tls.context,
            ssl_handshake_timeout=self._limiter.timeouts.handshake,
        )

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._limiter, self._responders, loop=self._loop)

    def _tls_connection(self, context: ssl.SSLContext) -> TlsProtocol:
        return TlsProtocol(
            self._connection(), context=context, handshakes=self._handshakes, loop=self._loop
        )


@asynccontextmanager
async def serving(
    app: web.Application,
    *,
    tls: ServerTls | None,
    metrics: RequestMetrics,
    max_connections: int,
    drain_seconds: float,
    log: FilteringBoundLogger,
    lane: Endpoint | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[Listener]:
    """Serve while the context is open, wherever the listener that it returns is started.

    ``lane`` is the route whose plain requests are answered before aiohttp. When the context ends,
    no more connections are accepted, and requests that have begun have ``drain_seconds`` to end.
    """
    capacity = raise_open_file_limit(max_connections, log)
    limiter = ConnectionLimiter(
        max_connections=capacity,
        metrics=metrics,
        timeouts=timeouts,
        time=asyncio.get_running_loop().time,
    )
    server = ApplicationServer(app, limiter)
    async with AsyncExitStack() as stack:
        await server.start()
        stack.push_async_callback(server.stop, drain_seconds)
        responders = Responders(
            make_handler=server.handler,
            lane=Lane(lane, middleware=app[MIDDLEWARE], max_headers=capacity) if lane else None,
        )
        listener = Listener(limiter=limiter, responders=responders, tls=tls, log=log)
        stack.callback(listener.close)
        if tls is not None:
            stack.push_async_callback(_cancel, asyncio.create_task(tls.keep_renewing(log)))
        yield listener


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
