"""Until when certificates are good: those of daemons, and the operator's own."""

import asyncio
import ssl
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from cli.connections.contexts import Context
from cli.connections.session import client_tls
from cli.errors import NotReached
from httpd.host_metrics.expiry import expiries_of
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


def own_days_left(context: Context) -> float | None:
    """Return for how many days the operator's own certificate is still good, negative if it is not.

    None if the context has none, or its file cannot be read.
    """
    path = None if context.certificate is None else Path(context.certificate)
    ends = list(expiries_of(certificate=path, authorities=None).values())
    return (ends[0] - time.time()) / DAY if ends else None
