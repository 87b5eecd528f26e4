"""A client of a registry, and what registries of every kind answer it."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from clients.errors import RegistryError
from clients.message import Heartbeat, Node
from clients.registry import RegistryClient, Timeouts
from clients.tls import ClientTls
from tests.support.certificates import Pair

KEY = "k" * 40
HEARTBEAT = Heartbeat(labels=["service:web"], kv={"rack": "r12"})
NODE = Node(hostname="web-1", labels=["service:web"], kv={"rack": "r12"}, last_update=1)


@asynccontextmanager
async def client(
    url: str, *, client_tls: ClientTls | None = None, seconds: float = 5
) -> AsyncIterator[RegistryClient]:
    async with RegistryClient(
        url=url, key=lambda: KEY, client_tls=client_tls, timeouts=Timeouts(seconds)
    ) as opened:
        yield opened


async def accept_heartbeat(request: web.Request) -> web.Response:
    """Take any heartbeat, as a registry does."""
    body = await request.json()
    name = request.path.rpartition("/")[2]
    return web.json_response([{"hostname": name, **body, "last_update": 1}])


async def failure_of(
    url: str, *, client_tls: ClientTls | None = None, seconds: float = 5
) -> RegistryError:
    """Return what reporting to a registry fails with."""
    async with client(url, client_tls=client_tls, seconds=seconds) as registry:
        with pytest.raises(RegistryError) as raised:
            await registry.report("web-1", HEARTBEAT)
    return raised.value


def server_context(pair: Pair, *, client_ca: Path | None = None) -> ssl.SSLContext:
    """Make what a server listens with."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pair.certificate, pair.key)
    if client_ca is not None:
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(client_ca)
    return made
