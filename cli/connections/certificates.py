"""Until when the certificate of a daemon is good."""

import asyncio
import ssl
import time
from contextlib import suppress
from urllib.parse import urlsplit

from cli.connections.contexts import Context
from cli.connections.session import client_tls
from cli.errors import NotReached
from registry.client.errors import RegistryError

SECONDS = 10
DAY = 86_400


async def days_left(url: str, context: Context, *, server_hostname: str | None = None) -> float:
    """Return for how many days the certificate of a daemon is still good; NotReached.

    It has to be good for ``server_hostname``, or else for the host in the URL.
    """
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(
                parts.hostname,
                parts.port or 443,
                ssl=client_tls(context).context(),
                server_hostname=server_hostname or parts.hostname,
            )
    except TimeoutError as error:
        raise NotReached(f"{url}: no TLS connection within {SECONDS} s") from error
    except (OSError, ValueError, RegistryError) as error:
        raise NotReached(f"{url}: {error}") from error
    try:
        certificate = writer.get_extra_info("peercert")
        return (ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()) / DAY
    finally:
        # All that was wanted is known; the socket is closed before the event loop ends.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
