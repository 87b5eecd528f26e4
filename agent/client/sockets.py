"""The sockets of the client."""

import socket

import aiohttp

IDLE_SECONDS = 30
INTERVAL_SECONDS = 10
PROBES = 3


def keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection breaks off a minute after the other host has vanished.

    An answer may take as long as a pull, so that its silence tells nothing.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    return made
