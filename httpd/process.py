"""Signals, and notifications to systemd (sd_notify)."""

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Mapping

from structlog.typing import FilteringBoundLogger


class SystemdNotifier:
    """Sends the state to the socket in ``NOTIFY_SOCKET``, if it is set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000

    def ready(self, status: str) -> None:
        """Notify systemd that requests are answered."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Notify systemd that the settings are being reloaded; ``ready`` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify systemd that the daemon is stopping."""
        self._send("STOPPING=1")

    def ping_watchdog(self) -> None:
        """Notify systemd's watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ stands for the abstract namespace.
        address = self._address.replace("@", "\0", 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)


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

    async def run_until_stopped(self, reload: Callable[[], None]) -> None:
        """Notify systemd that the daemon is ready, and return on SIGTERM or SIGINT.

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
        # If the event loop hangs, the notifications stop, and systemd restarts the daemon.
        while self._notifier.watchdog_seconds:
            self._notifier.ping_watchdog()
            await asyncio.sleep(self._notifier.watchdog_seconds / 3)
