"""What is wrong with a login that fails, and the command that would work."""

import asyncio
import ipaddress
import socket
import ssl
from contextlib import suppress
from typing import NamedTuple, Protocol

from cli.connections.contexts import Context
from cli.connections.keys import KEY_HINT
from cli.connections.trust import Origin, origin_of
from cli.errors import CommandError, NotReached, WrongUsage
from registry.client.client import RegistryClient
from registry.client.errors import (
    NotARegistry,
    NotFound,
    NotPermitted,
    NotTls,
    RegistryError,
    Unreachable,
    WrongKey,
)

SECONDS = 5
REGISTRY_PORT = 7655
AGENT_PORT = 7656


class Retry(Protocol):
    """Returns the login as it was typed, with other values of some options."""

    def __call__(self, **options: object) -> str:
        """Return the command."""


class Attempt(NamedTuple):
    """A login: its context, how it may be typed again, and how with another key."""

    context: Context
    retry: Retry
    other_key: str


def check_url(attempt: Attempt) -> None:
    """Refuse a URL of a registry that the key must not be sent to; WrongUsage."""
    context, retry, _ = attempt
    url = context.registry
    origin = origin_of(url)
    if origin is None:
        with_scheme = None if "://" in url else origin_of(f"https://{url}")
        if with_scheme is None:
            example = f"https://registry:{REGISTRY_PORT}"
            raise WrongUsage(
                f"{url!a} is no URL of a registry: scheme, host and port, such as {example}",
                hint=retry(url=example),
            )
        port = with_scheme.port or REGISTRY_PORT
        raise WrongUsage(
            f"{url!a} has no scheme: https://, or http:// without TLS",
            hint=retry(url=str(with_scheme._replace(port=port))),
        )
    if origin.scheme == "http" and not context.allows_plain(origin.host):
        raise WrongUsage(
            f"{url} has no TLS, and the key would be readable on the way to it",
            hint=f"use https://, or if that is safe: {_without_tls(origin, attempt)}",
        )


def _without_tls(origin: Origin, attempt: Attempt) -> str:
    """Return the login that sends the key without TLS, to an address: no name is allowed."""
    address = _address(origin.host)
    plain = origin._replace(scheme="http", host=address)
    allowed = list(dict.fromkeys([*attempt.context.allow_plain, address]))
    return attempt.retry(url=str(plain), allow_plain=allowed)


def _address(host: str) -> str:
    with suppress(ValueError):
        return str(ipaddress.ip_address(host))
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "ADDRESS"
    return str(found[0][4][0])


def wrong_key_file(error: WrongUsage, attempt: Attempt) -> WrongUsage:
    """Return the error of a key that cannot be read, with the login as the next step."""
    hint = attempt.other_key if error.hint == KEY_HINT else error.hint
    return WrongUsage(str(error), hint=hint)


async def failed_login(
    error: RegistryError, registry: RegistryClient, attempt: Attempt
) -> CommandError | None:
    """Return what a registry's error means for a login; None if it says all there is to say."""
    url, retry = attempt.context.registry, attempt.retry
    origin = origin_of(url)
    assert origin is not None, "check_url was called"
    if isinstance(error, NotTls):
        step = _without_tls(origin, attempt)
        return NotReached(f"{url} does not speak TLS", hint=f"if that is safe: {step}")
    if isinstance(error, WrongKey | NotPermitted):
        return NotReached(f"the registry: {error}{_of_port(origin)}", hint=attempt.other_key)
    is_other = isinstance(error, NotFound | NotARegistry)
    if is_other and await _is_agent(registry):
        other = Origin(origin.scheme, "REGISTRY", REGISTRY_PORT)
        return NotReached(
            f"{url} is an agent, not a registry; a registry has port {REGISTRY_PORT} by default",
            hint=retry(url=str(other)),
        )
    is_plain = origin.scheme == "http"
    if is_plain and (is_other or isinstance(error, Unreachable)) and await _speaks_tls(origin):
        ca = attempt.context.ca or "FILE"
        step = retry(url=str(origin._replace(scheme="https")), ca=ca, allow_plain=())
        return NotReached(f"{url} speaks TLS", hint=step)
    return None


def _of_port(origin: Origin) -> str:
    """Return why a key may be unknown there; empty if the port is no agent's."""
    if origin.port != AGENT_PORT:
        return ""
    return f"; {AGENT_PORT} is the port of agents, {REGISTRY_PORT} that of registries"


async def _speaks_tls(origin: Origin) -> bool:
    """Return whether a server makes a TLS connection; nothing is sent over it."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(origin.host, origin.port or 80, ssl=anybody)
    except OSError:
        return False
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _is_agent(registry: RegistryClient) -> bool:
    try:
        return (await registry.access()).daemon == "agent"
    except RegistryError:
        return False
