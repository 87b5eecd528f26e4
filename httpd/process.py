"""Telling systemd how we are (the sd_notify protocol; without systemd nothing happens)."""

import socket
import time
from collections.abc import Mapping


class SystemdNotifier:
    """Sends states to the socket that systemd names in the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000

    def ready(self, status: str) -> None:
        """Tell that requests are answered now."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Tell that settings are being read again; to be followed by ready."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Tell that the end has begun."""
        self._send("STOPPING=1")

    def ping_watchdog(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ stands for the abstract namespace.
        address = self._address.replace("@", "\0", 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
