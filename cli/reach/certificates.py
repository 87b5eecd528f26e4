"""Certificates of daemons, and the operator's own: their ends, their names, and their faults."""

import asyncio
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli.errors import NotReached
from cli.reach.contexts import Context
from cli.reach.session import client_tls
from clients.errors import RegistryError
from runtime.certificates import validities_of, validity_of

SECONDS = 10
DAY = 86_400
COMPARE_CLOCKS = "compare the clock of this host with that of the registry: timedatectl"
RENEWAL = 'renew it on the host of the registry: docs/rollout.md, "6. Renew certificates"'


async def days_left(
    url: str, context: Context, *, server_hostname: str | None = None, seconds: float = SECONDS
) -> float:
    """Return for how many days the certificate of a daemon is still good; NotReached.

    It has to be good for ``server_hostname``, or else for the host in the URL. ``seconds`` bounds
    the wait.
    """
    try:
        tls = client_tls(context).context()
    except RegistryError as error:
        raise NotReached(f"{url}: {error}") from error
    connection = await _connection(url, tls, server_hostname=server_hostname, seconds=seconds)
    shown = connection.getpeercert()
    assert shown is not None, "no connection is made without a certificate"
    return (ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()) / DAY


async def names_of(url: str, context: Context) -> list[str]:
    """Return the names in the certificate of a daemon, if a CA of the context signed it; else none.

    NotReached.
    """
    tls = client_tls(context).context()
    tls.check_hostname = False
    shown = (await _connection(url, tls)).getpeercert() or {}
    names: Any = shown.get("subjectAltName", ())
    return [name for kind, name in names if kind in ("DNS", "IP Address")]


async def end_of(url: str) -> float:
    """Return when the certificate of a daemon expires, whoever signed it; NotReached."""
    shown = (await _connection(url, _anybody())).getpeercert(binary_form=True) or b""
    try:
        return validity_of(shown).ends
    except ValueError as error:
        raise NotReached(f"{url}: {error}") from error


async def speaks_tls(url: str) -> bool:
    """Return whether a server makes a TLS connection; nothing is sent over it."""
    try:
        await _connection(url, _anybody())
    except NotReached:
        return False
    return True


def _anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _connection(
    url: str,
    tls: ssl.SSLContext,
    *,
    server_hostname: str | None = None,
    seconds: float = SECONDS,
) -> ssl.SSLObject:
    """Make a TLS connection and close it; return what it has shown. NotReached."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(
                parts.hostname,
                parts.port or 443,
                ssl=tls,
                server_hostname=server_hostname or parts.hostname,
            )
    except TimeoutError as error:
        raise NotReached(f"{url}: no TLS connection within {seconds:g} s") from error
    except (OSError, ValueError) as error:
        raise NotReached(f"{url}: {error}") from error
    shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
    # All that was wanted is known; the socket is closed before the event loop ends.
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    return shown


def own_days_left(context: Context) -> float | None:
    """Return for how many days the operator's own certificate is still good, negative if it is not.

    None if the context has none, or its file cannot be read.
    """
    end = own_end(context)
    return None if end is None else (end - time.time()) / DAY


def own_end(context: Context) -> float | None:
    """Return when the operator's own certificate expires; None if it cannot be read."""
    path = None if context.certificate is None else Path(context.certificate)
    found = list(validities_of(certificate=path, authorities=None).values())
    return found[0].ends if found else None


def not_accepted(context: Context) -> str:
    """Return why a registry may not accept the operator's own certificate."""
    if context.certificate is None:
        return "the registry does not accept a connection without a client certificate"
    end = own_end(context)
    if end is not None and end < time.time():
        return f"your certificate {context.certificate} expired on {_date(end)}"
    return (
        f"the registry does not accept the certificate {context.certificate}: it must be signed by "
        "a CA in the file that `tls.client_ca` of the registry names"
    )


async def expired(url: str) -> NotReached:
    """Return since when the certificate of a registry has expired, and what renews it."""
    try:
        end = await end_of(url)
    except NotReached:
        end = None
    if end is None or end > time.time():
        text = "a CA in the chain of the registry's certificate has expired"
    else:
        text = f"the registry's certificate expired on {_date(end)}"
    return NotReached(text, hint=RENEWAL)


def _date(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))
