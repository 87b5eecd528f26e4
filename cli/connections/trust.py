"""Whom a key may be sent to. A node chooses its `agent.url` itself, so it is not trusted."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from cli.connections.contexts import Context
from cli.errors import NotReached, WrongUsage
from registry.message import Node

AGENT_URL = "agent.url"


@dataclass(frozen=True)
class AgentAddress:
    """Where an agent is, and the hostname that its certificate has to be good for."""

    url: str
    server_hostname: str


def agent_address(node: Node, context: Context) -> AgentAddress:
    """Return where the agent of a node is, if the key may be sent there.

    That is so over TLS, since the certificate then has to be good for the node's hostname, and to
    addresses that the context allows without TLS.

    Raises:
        NotReached: the node names no agent, or one that the key must not be sent to.

    """
    url = node.kv.get(AGENT_URL)
    if url is None:
        raise NotReached(f"it names no agent: its kv has no {AGENT_URL}")
    address = AgentAddress(_origin(url), node.hostname)
    parts = urlsplit(address.url)
    if parts.scheme == "http" and not context.allows_plain(parts.hostname or ""):
        raise NotReached(
            f"its agent at {url!a} has no TLS, and the context does not allow the key to go there",
            hint=_plain_hint(parts.hostname or ""),
        )
    return address


def checked_registry(url: str, context: Context) -> None:
    """Refuse a URL of a registry that the key must not be sent to; WrongUsage."""
    parts = urlsplit(_origin(url))
    if parts.scheme == "http" and not context.allows_plain(parts.hostname or ""):
        raise WrongUsage(
            f"{url} has no TLS, and the key would be readable on the way to it",
            hint="use https://, or if it is safe: --allow-plain ADDRESS",
        )


def _plain_hint(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "set `node.advertise` of that agent to a URL with https:, or with an address"
    return f"if that is safe: rollcall context set --allow-plain {host}"


def _origin(url: str) -> str:
    """Return a URL without a slash at its end; NotReached if it is more than scheme and address."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        valid, parts = False, urlsplit("")
    rest = (parts.username, parts.password, parts.path.strip("/"), parts.query, parts.fragment)
    if not valid or any(rest) or not url.isascii() or not url.isprintable():
        raise NotReached(f"{url!a} is no URL of a daemon, such as https://host:7656")
    return url.rstrip("/")
