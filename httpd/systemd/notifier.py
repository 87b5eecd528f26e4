"""Notifications to systemd, as in sd_notify(3)."""

import socket
import time
from collections.abc import Mapping


class SystemdNotifier:
    """Sends the state to the socket in ``NOTIFY_SOCKET``, if it is set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = int(environ.get("WATCHDOG_USEC", "0")) / 1_000_000

    def ready(self, status: str) -> None:
        """Notify systemd that requests are answered."""
        self._send(f"READY=1\nSTATUS={status}")

    def extend_timeout(self, seconds: float) -> None:
        """Have systemd wait for so many seconds more until the start, or this again."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}")

    def reloading(self) -> None:
        """Notify systemd that the settings are being reloaded; ``ready`` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify systemd that the daemon is stopping."""
        self._send("STOPPING=1")

    def ping_watchdog(self) -> None:
        """Notify systemd's watchdog."""
        self._send("WATCHDOG=1")

    def store_socket(self, name: str, descriptor: int) -> None:
        """Give systemd a copy of a socket, which it hands to the process that follows this one."""
        self._send(f"FDSTORE=1\nFDNAME={name}", descriptor)

    def remove_socket(self, name: str) -> None:
        """Let systemd close its copies of a socket."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _send(self, state: str, *descriptors: int) -> None:
        if not self._address:
            return
        # A leading @ stands for the abstract namespace.
        address = self._address.replace("@", "\0", 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            socket.send_fds(sender, [state.encode()], descriptors)
