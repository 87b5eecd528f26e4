"""Certificates that servers in tests sign themselves."""

import ssl
from pathlib import Path

import aiohttp

from tests.support.certificates import self_signed


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
