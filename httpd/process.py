"""What a daemon does beside answering: signals, memory, names of hosts."""

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from httpd.systemd.service import SystemdNotifier
from runtime.periodic import PeriodicTask
from runtime.share import JoinedCalls

M_MMAP_THRESHOLD = -3  # from malloc.h
LARGE_BLOCK_BYTES = 32 * 1024
EXTENSION_SECONDS = 30.0
MAX_LOOKUPS = 32


def map_large_blocks() -> None:
    """Have the C library take each large block from the system by itself, if it is glibc.

    Such a block returns to the system when it is freed. One in the heap stays while anything
    above it is in use: of 64 MiB of bodies that were never finished, all of it stayed for good.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def run_to_end(daemon: Coroutine[Any, Any, None]) -> None:
    """Run a daemon in an event loop of its own.

    At the end, threads of the loop that still work are left alone: one that looks up a host's name
    may be held up for minutes, and ``asyncio.run`` would wait for it.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(daemon)


def exit_without_threads(status: int) -> None:
    """End the process even if a thread still waits, as for a name that nobody resolves.

    A normal exit would wait for the thread. All files and databases must be closed by now.
    """
    if threading.active_count() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _DetachedThreads(ThreadPoolExecutor):
    """Threads that nobody waits for at the end."""

    def shutdown(self, *_: object, **__: object) -> None:
        """Begin no further work; do not wait for what has begun."""
        super().shutdown(wait=False, cancel_futures=True)


class _Loop(asyncio.SelectorEventLoop):
    """Looks up names in threads of their own, at most MAX_LOOKUPS.

    Where a DNS server is silent, a look-up takes up to minutes: in the threads that the loop lends
    to everybody, some names would delay the revocation of a key. A task that asks for the same name
    again waits for the look-up that runs, so that few names never use up the threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_default_executor(_DetachedThreads())
        self._lookup_threads = _DetachedThreads(MAX_LOOKUPS, "lookup")
        self._lookups = JoinedCalls[object, Any]()

    async def getaddrinfo(self, host: Any, port: Any, **options: int) -> Any:
        """Return the addresses of a name."""
        return await self._look_up(socket.getaddrinfo, host, port, **options)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        """Return the name of an address."""
        return await self._look_up(socket.getnameinfo, sockaddr, flags)

    def close(self) -> None:
        """Close; look-ups that still run are left alone."""
        self._lookup_threads.shutdown()
        super().close()

    async def _look_up(self, function: Callable[..., Any], *arguments: Any, **options: int) -> Any:
        call = partial(function, *arguments, **options)
        return await self._lookups.get(
            (function, arguments, frozenset(options.items())),
            lambda: self.run_in_executor(self._lookup_threads, call),
        )


class SignalHandler:
    """SIGTERM and SIGINT end ``run_until_stopped``; SIGHUP reloads the settings.

    A signal that arrives before ``run_until_stopped`` is called takes effect then.
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

    async def run_until_stopped(self, reload: Callable[[], Awaitable[object]]) -> None:
        """Notify systemd that the daemon is ready, and wait for SIGTERM or SIGINT.

        If ``reload`` raises an exception, its text is logged and the old settings stay in force.
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

    async def _reload_on_hangup(self, reload: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            self._notifier.reloading()
            try:
                await reload()
            except Exception as error:
                self._log.error("not reloaded, all stays as it was", reason=str(error))
            else:
                self._log.info("reloaded")
            self._notifier.ready("answering")

    async def _feed_watchdog(self) -> None:
        # If the event loop hangs, the notifications stop, and systemd restarts the daemon.
        while self._notifier.watchdog_seconds:
            self._notifier.ping_watchdog()
            await asyncio.sleep(self._notifier.watchdog_seconds / 3)


def extending_start(
    notifier: SystemdNotifier, log: FilteringBoundLogger, *, seconds: float = EXTENSION_SECONDS
) -> PeriodicTask:
    """Return a task: while it is open, systemd waits for the start, however long it takes.

    Otherwise systemd ends a daemon that is not ready within ``TimeoutStartSec=``, starts it again,
    and so on. If the event loop hangs, the notifications stop, and systemd ends it.
    """

    async def extend() -> None:
        notifier.extend_timeout(seconds)

    return PeriodicTask(interval=seconds / 3, action=extend, log=log)
