"""The listener: a socket, and the connections that it accepts."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.metrics import RequestMetrics
from httpd.middleware import MIDDLEWARE
from httpd.server.application import ApplicationServer
from httpd.server.connection import HttpConnection, Responders
from httpd.server.handshakes import HandshakeScheduler, TlsProtocol, missing_names
from httpd.server.lane import Endpoint, Lane
from httpd.server.limits import ConnectionLimiter, Timeouts, raise_open_file_limit
from httpd.server.tls import ServerTls
from httpd.systemd.service import Address, SystemdNotifier, SystemdSockets, UnwantedSocket

# They wait here while the daemon is restarted.
BACKLOG = 4096
# asyncio accepts up to its backlog of connections at once, before any can be rejected. If it has no
# descriptor left, it logs an error for each of the rest.
ACCEPTED_AT_ONCE = 32
DEFAULT_TIMEOUTS = Timeouts()
# The host lacks the address.
LACKING = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


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
        systemd: SystemdSockets,
        log: FilteringBoundLogger,
    ) -> None:
        self._limiter = limiter
        self._responders = responders
        self._tls = tls
        self._systemd = systemd
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._handshakes = HandshakeScheduler(limiter, loop=self._loop, log=log)
        self._servers: list[asyncio.Server] = []
        self.has_kept_socket = False
        """Whether systemd handed over a socket, where connections may have waited since before."""
        self._protocol: Callable[[], asyncio.BaseProtocol] = self._connection
        self._tls_options: dict[str, Any] = {}
        if tls is not None:
            self._use_tls(tls)

    def _use_tls(self, tls: ServerTls) -> None:
        missing = missing_names(tls.ssl_protocol)
        if not missing:
            self._protocol = partial(self._tls_connection, tls.context)
            return
        self._log.warning(
            "TLS handshakes do not take turns: unknown version of asyncio", missing=missing
        )
        self._tls_options = {
            "ssl": tls.context,
            "ssl_handshake_timeout": self._limiter.timeouts.handshake,
        }

    async def start(self, address: tuple[str, int], *, shared: bool = False) -> tuple[str, int]:
        """Listen and accept; return the address, with the port that was chosen if it was 0.

        Other processes of the same user may listen on a ``shared`` address, too, if all of them
        share it: the system gives each new connection to one of them, whichever it is.

        Raises:
            ListenError: the address is in use, or not one of this machine, or a .socket unit of
                systemd listens on another one.

        """
        bound = await self.listen(address, shared=shared)
        await self.accept()
        return bound

    async def listen(self, address: tuple[str, int], *, shared: bool = False) -> tuple[str, int]:
        """Do as ``start``, but let connections wait until ``accept`` is called.

        Under systemd, connections to an address that is not shared wait from run to run.
        """
        try:
            servers = await self._servers_at(address, shared=shared)
        except OSError as error:
            reason = _reason(error)
            if shared and error.errno == errno.EADDRINUSE:
                reason += ", by a process that does not share it, or by another user's"
            raise ListenError(f"cannot listen on {address[0]}:{address[1]}: {reason}") from error
        bound = [_bound_address(each) for each in servers]
        for host, port in bound:
            self._log.info("listening", host=host, port=port, tls=self._tls is not None)
        return bound[0]

    async def accept(self) -> None:
        """Accept connections wherever it listens."""
        for server in self._servers:
            if not server.is_serving():
                await server.start_serving()
                _widen_backlog(server)  # asyncio has made it smaller

    def close(self) -> None:
        """Stop listening, and abort the handshakes that are not done."""
        for server in self._servers:
            server.close()
        self._handshakes.close()

    async def _servers_at(self, address: tuple[str, int], *, shared: bool) -> list[asyncio.Server]:
        """Return a server for each address that is meant, on a socket of systemd if it has one.

        A name such as localhost may mean more addresses than this machine has.
        """
        families = await self._resolve(address)
        taken = {} if shared else self._take(families, address)
        self.has_kept_socket |= bool(taken)
        servers = [await self._server(each) for each in taken.values()]
        lacking: dict[Address, OSError] = {}
        for each in [each for each in families if each not in taken]:
            try:
                made = _listening_socket(each, families[each], shared=shared)
            except OSError as error:
                if error.errno not in LACKING:
                    raise
                lacking[each] = error
                continue
            servers.append(await self._server(made))
            if not shared:
                self._systemd.keep(_bound_address(servers[-1]), made.fileno())
        if not servers:
            raise next(iter(lacking.values()))
        for (host, port), lack in lacking.items():
            self._log.warning("not listening", host=host, port=port, error=_reason(lack))
        return servers

    async def _resolve(self, address: tuple[str, int]) -> dict[Address, int]:
        """Return the addresses that an address means, each with its family."""
        found = await self._loop.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return {(str(each[0]), int(each[1])): family for family, *_, each in found}

    def _take(
        self, wanted: Collection[Address], address: tuple[str, int]
    ) -> dict[Address, socket.socket]:
        try:
            return self._systemd.take(wanted)
        except UnwantedSocket as error:
            raise ListenError(f"{error}, but `listen` is {address[0]}:{address[1]}") from error

    async def _server(self, listening: socket.socket) -> asyncio.Server:
        """Make a server that does not accept yet."""
        server: asyncio.Server = await self._loop.create_server(
            self._protocol,
            sock=listening,
            backlog=ACCEPTED_AT_ONCE,
            start_serving=False,
            **self._tls_options,
        )
        self._servers.append(server)
        _widen_backlog(server)
        return server

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
    systemd: SystemdSockets | None = None,
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
            daemon=app[MIDDLEWARE].daemon,
            make_handler=server.handler,
            lane=Lane(lane, middleware=app[MIDDLEWARE], max_headers=capacity) if lane else None,
        )
        listener = Listener(
            limiter=limiter,
            responders=responders,
            tls=tls,
            systemd=systemd or SystemdSockets(environ={}, notifier=SystemdNotifier({})),
            log=log,
        )
        stack.callback(listener.close)
        if tls is not None:
            await stack.enter_async_context(tls.renewing(log))
        yield listener


def _listening_socket(address: Address, family: int, *, shared: bool) -> socket.socket:
    # Not asyncio: it does not tell why it could not make a socket, from Python 3.13 on nor bind it.
    return socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shared)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):  # its number is not one of the system's
        return str(error.strerror)
    return os.strerror(error.errno or 0)


def _widen_backlog(server: asyncio.Server) -> None:
    for listening in server.sockets:
        with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
            same.listen(BACKLOG)


def _bound_address(server: asyncio.Server) -> tuple[str, int]:
    host, port = server.sockets[0].getsockname()[:2]
    return host, port
