"""Connections to a registry with a lane, over TCP or TLS, and what is read from them."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from httpd.server.tls import ServerTls, TlsFiles
from registry.api.access import NodeKeys
from registry.nodes.directory import FRESH, STALE, Directory, KnownNode
from tests.support.certificates import Authority
from tests.support.registry.in_process import NODE_SECRET


class PipelinedResponse(NamedTuple):
    """Status, headers without the moment's, body."""

    status: int
    headers: dict[str, str]
    body: bytes


class Transport(NamedTuple):
    """How both registries are reached."""

    server: Callable[[], ServerTls | None]
    client: ssl.SSLContext | None


def over_tls(folder: Path, hosts: Sequence[str]) -> Transport:
    """Return TLS, with a client certificate for the hosts if there are any."""
    authority = Authority(folder)
    server = authority.issue("127.0.0.1")
    context = ssl.create_default_context(cafile=authority.ca)
    if hosts:
        client = authority.issue(*hosts)
        context.load_cert_chain(client.certificate, client.key)
    files = TlsFiles(server.certificate, server.key, authority.ca if hosts else None)
    return Transport(lambda: ServerTls(files), context)


async def read_head(reader: asyncio.StreamReader) -> list[str]:
    """Read the head of a response; return its lines."""
    return (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")


async def read_response(reader: asyncio.StreamReader, *, whole: bool = True) -> PipelinedResponse:
    """Read one response, behind all invitations to send the body."""
    head = await read_head(reader)
    while head[0] == "HTTP/1.1 100 Continue":
        head = await read_head(reader)
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    headers.pop("Date")
    size = int(headers["Content-Length"]) if whole else 0
    return PipelinedResponse(int(head[0].split()[1]), headers, await reader.readexactly(size))


NODE_KEY = NodeKeys([NODE_SECRET]).make("web-0")


def by_age(directory: Directory) -> list[KnownNode]:
    """Return all nodes, first those that were seen longest ago."""
    return [*directory.stages[STALE], *directory.stages[FRESH]]
