"""Listening, and living until told to stop."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from httpd.continue_100 import DeferredContinue
from httpd.instant import Instant
from httpd.metrics import RequestMetrics
from httpd.process import SystemdNotifier
from httpd.server.connection import HttpConnection
from httpd.server.handshakes import HandshakeScheduler
from httpd.server.limits import ConnectionLimiter, Timeouts
from httpd.server.open_files import raise_open_file_limit
from httpd.server.tls import ServerTls, TlsProtocol

BACKLOG = 1024
# asyncio accepts as many connections in one go as may queue, before any can be refused. With no
# descriptor left for one of them it would log an error for each that it did not take.
ACCEPTED_AT_ONCE = 32
DEFAULT_TIMEOUTS = Timeouts()


class ListenError(Exception):
    """The daemon cannot start; the text says why and what would help."""


class _Listener(web.BaseSite):
    """A listening socket whose connections are ours (aiohttp's own sites offer no such choice)."""

    def __init__(
        self,
        runner: web.AppRunner,
        *,
        address: tuple[str, int],
        tls: ServerTls | None,
        limiter: ConnectionLimiter,
    ) -> None:
        super().__init__(runner, backlog=ACCEPTED_AT_ONCE)
        self._tls = tls
        self._address = address
        self._limiter = limiter
        self._handshakes = HandshakeScheduler(limiter, loop=asyncio.get_running_loop())

    @property
    def name(self) -> str:
        """The address, for aiohttp's own messages."""
        return f"{self._address[0]}:{self._address[1]}"

    async def start(self) -> None:
        """Listen; raises StartError."""
        await super().start()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._connection, *self._address, backlog=self._backlog
            )
        except OSError as error:
            raise ListenError(
                f"cannot listen on {self.name}: {os.strerror(error.errno or 0)}"
            ) from error
        for listening in self._server.sockets:
            with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                same.listen(BACKLOG)

    async def stop(self) -> None:
        """Listen no more; who is not yet connected has to go."""
        await super().stop()
        self._handshakes.close()

    def _connection(self) -> asyncio.BaseProtocol:
        manager, loop = self._runner.server, asyncio.get_running_loop()
        assert manager is not None
        connection = HttpConnection(manager, limiter=self._limiter, loop=loop)
        if self._tls is None:
            return connection
        return TlsProtocol(
            connection,
            context=self._tls.context,
            handshakes=self._handshakes,
            loop=loop,
        )


@asynccontextmanager
async def listening(
    app: web.Application,
    *,
    address: tuple[str, int],
    tls: ServerTls | None,
    metrics: RequestMetrics,
    max_connections: int,
    drain_seconds: float,
    log: FilteringBoundLogger,
    instant: Instant | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[tuple[str, int]]:
    """Listen while the context is open; give the address (its port, where 0 was asked for).

    At the end no connection is accepted any more, and requests under way have ``drain_seconds``
    to be answered.

    Raises:
        StartError: the address is in use, or not one of this machine.

    """
    runner = web.AppRunner(app, shutdown_timeout=drain_seconds, access_log=None)
    await runner.setup()
    assert runner.server is not None
    DeferredContinue(runner.server)
    capacity = raise_open_file_limit(max_connections, log)
    limiter = ConnectionLimiter(
        max_connections=capacity, metrics=metrics, timeouts=timeouts, instant=instant
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        await _Listener(runner, address=address, tls=tls, limiter=limiter).start()
        host, port = runner.addresses[0][:2]
        log.info("listening", host=host, port=port, tls=tls is not None)
        if tls is not None:
            stack.push_async_callback(_cancel, asyncio.create_task(tls.keep_renewing(log)))
        yield host, port


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class SignalHandler:
    """SIGTERM and SIGINT end ``run_until_stopped``; SIGHUP calls what is to be read again.

    A signal that comes before there is anybody to heed it is kept, not lost.
    """

    def __init__(self, *, notifier: SystemdNotifier, log: FilteringBoundLogger) -> None:
        self._notifier = notifier
        self._log = log
        self._stop = asyncio.Event()
        self._hangup = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)

    async def run_until_stopped(self, reload: Callable[[], None]) -> None:
        """Tell systemd that we are ready, and return when the end is asked for.

        ``reload`` raises any exception whose text says what is wrong; what was in force stays so.
        """
        self._notifier.ready("answering")
        tasks = [
            asyncio.create_task(self._reload_on_hangup(reload)),
            asyncio.create_task(self._feed_watchdog()),
        ]
        try:
            await self._stop.wait()
        finally:
            self._notifier.stopping()
            self._log.info("stopping")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reload_on_hangup(self, reload: Callable[[], None]) -> None:
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            self._notifier.reloading()
            try:
                reload()
            except Exception as error:
                self._log.error("not reloaded, all stays as it was", reason=str(error))
            else:
                self._log.info("reloaded")
            self._notifier.ready("answering")

    async def _feed_watchdog(self) -> None:
        # A loop that is stuck feeds nobody, and systemd starts us anew.
        while self._notifier.watchdog_seconds:
            self._notifier.ping_watchdog()
            await asyncio.sleep(self._notifier.watchdog_seconds / 3)
