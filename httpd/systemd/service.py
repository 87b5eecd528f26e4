"""Notifications to systemd, and the listening sockets that it keeps."""

import os
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TypeAlias

# The host as a number, and the port.
Address: TypeAlias = tuple[str, int]
FIRST_DESCRIPTOR = 3
OWN_PREFIX = "listen-"


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


class UnwantedSocket(Exception):
    """A .socket unit has a socket that this daemon is not to listen on; the text says which."""


class SystemdSockets:
    """The listening sockets that systemd hands over at a start, and keeps until the next one.

    Systemd keeps a copy of each socket that ``keep`` gives it, so that connections wait for the
    next process while none runs. It closes them when the unit is stopped, or fails.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        notifier: SystemdNotifier,
        first_descriptor: int = FIRST_DESCRIPTOR,
    ) -> None:
        self._notifier = notifier
        self._first_descriptor = first_descriptor
        self._names: list[str] = []
        if environ.get("LISTEN_PID") == str(os.getpid()):
            count = int(environ.get("LISTEN_FDS", "0"))
            names = environ.get("LISTEN_FDNAMES", "").split(":")
            self._names = [*names, *[""] * count][:count]

    def take(self, wanted: Collection[Address]) -> dict[Address, socket.socket]:
        """Return the sockets that were handed over, by their addresses; of a second call, none.

        One of an earlier run at an address that is not wanted any more is closed for good.

        Raises:
            UnwantedSocket: one of a .socket unit is not at a wanted address, or is not ours to use.

        """
        names, self._names = self._names, []
        found: dict[Address, socket.socket] = {}
        unwanted = []
        for descriptor, name in enumerate(names, self._first_descriptor):
            handed_over = socket.socket(fileno=descriptor)
            handed_over.set_inheritable(False)
            address = _address(handed_over)
            if address is not None and address in wanted and address not in found:
                found[address] = handed_over
                continue
            if name.startswith(OWN_PREFIX):
                self._notifier.remove_socket(name)
                _stop_listening(handed_over)
            else:
                unwanted.append(f"{name or 'a .socket unit'} has {_description(handed_over)}")
            handed_over.close()
        if unwanted:
            for handed_over in found.values():
                handed_over.close()
            raise UnwantedSocket("; ".join(unwanted))
        return found

    def keep(self, address: Address, descriptor: int) -> None:
        """Have systemd keep a listening socket of ours."""
        # A name must have no colon.
        name = f"{OWN_PREFIX}{address[0].replace(':', '_')}-{address[1]}"
        self._notifier.store_socket(name, descriptor)


def _address(handed_over: socket.socket) -> Address | None:
    """Return the address of a socket, None if it is not one that we would make for any address."""
    if handed_over.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    if not handed_over.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    if _takes_both_versions(handed_over):
        return None
    host, port = handed_over.getsockname()[:2]
    return host, port


def _stop_listening(handed_over: socket.socket) -> None:
    """Free the port at once, although systemd closes its copy some time later."""
    with suppress(OSError):  # it does not listen
        handed_over.shutdown(socket.SHUT_RDWR)


def _takes_both_versions(handed_over: socket.socket) -> bool:
    if handed_over.family != socket.AF_INET6 or handed_over.getsockname()[0] != "::":
        return False
    return not handed_over.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def _description(handed_over: socket.socket) -> str:
    if handed_over.family not in {socket.AF_INET, socket.AF_INET6}:
        return "a socket that is not of TCP"
    host, port = handed_over.getsockname()[:2]
    if handed_over.type != socket.SOCK_STREAM:
        return f"a socket that is not of TCP, port {port}"
    text = f"[{host}]:{port}" if handed_over.family == socket.AF_INET6 else f"{host}:{port}"
    if _takes_both_versions(handed_over):
        return f"{text} for IPv4 as well (it lacks `BindIPv6Only=ipv6-only`)"
    return text
