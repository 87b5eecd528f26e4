"""TLS for listeners, and clients that trust their certificates."""

import socket
import ssl
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.certificates import Authority, self_signed
from tests.support.daemons import Daemon


def certificate(folder: Path, stem: str, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for a name and localhost, and its key."""
    pair = self_signed(folder, name, "localhost", stem=stem)
    return pair.certificate, pair.key


def client_context(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


async def health(port: int, context: ssl.SSLContext) -> int:
    """Return the status of GET /healthz over TLS."""
    url = f"https://localhost:{port}/healthz"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as response:
        return response.status


HOST = "127.0.0.1"


class TlsListener:
    """The certificate of a daemon.

    Attributes:
        settings: what the daemon is started with.
        context: what its clients connect with.

    """

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        pair = authority.issue(HOST)
        files = {"certificate": str(pair.certificate), "key": str(pair.key)}
        self.settings: dict[str, Any] = {"tls": files, "trust": (str(authority.ca), None)}
        self.context = ssl.create_default_context(cafile=authority.ca)


def connect(
    daemon: Daemon, sockets: ExitStack, sent: bytes = b"", *, tls: TlsListener | None = None
) -> socket.socket:
    """Open a connection, with a handshake if there is TLS, and send something."""
    client = sockets.enter_context(closing(socket.create_connection((HOST, daemon.port), 30)))
    if tls is not None:
        secure = tls.context.wrap_socket(client, server_hostname=HOST)
        client = sockets.enter_context(closing(secure))
    client.sendall(sent)
    return client
