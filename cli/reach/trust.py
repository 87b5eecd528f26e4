"""Whom a key may be sent to. A node chooses its `agent.url` itself, so it is not trusted."""

import ipaddress
import re
from typing import NamedTuple

from cli.errors import NotReached, WrongUsage
from cli.reach.contexts import AGENT_KEYS, Context, is_host
from clients.message import Node
from clients.tls import is_loopback_address

AGENT_URL = "agent.url"
AGENT_KEY_STEP = "rollcall context set --agent-secret-file FILE"
OTHERWISE = "or --agent-key-file FILE with {hostname} in its path"
EXAMPLE = "https://host:7656"
MAX_PORT = 65_535
# Stricter than URLs are: no user, path, query, escape or zone is of use here.
ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.ASCII,
)
# A registry may be at a path of a proxy, since the operator types it. No part begins with a dot.
REGISTRY = re.compile(
    r"(?P<origin>https?://[^/?#]+)(?P<path>(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*)/?", re.ASCII
)


class Origin(NamedTuple):
    """The scheme, host and port of a URL; of a registry's, also the path, without a last slash."""

    scheme: str
    host: str
    port: int | None
    path: str = ""

    def __str__(self) -> str:
        """Return the URL, made anew of its parts: every reader of it finds the same host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def agent_address(node: Node, context: Context) -> Origin:
    """Return where the agent of a node is, if the key of agents may be sent there.

    Over TLS, its certificate has to be good for the node's hostname.

    That is so over TLS where the context names a CA, since the certificate then has to be one of
    that CA for the node's hostname. The system's CAs do not count: by them, whoever chooses a
    hostname of their own has a certificate. Without TLS, that is so at addresses that the context
    allows, and at a loopback address if that of the registry is one, too. The key of the registry
    is sent to loopback addresses alone.

    Raises:
        NotReached: the node reports no agent, or one that the key must not be sent to.
        WrongUsage: the context has no key for agents.

    """
    check_agent_key(context)
    url = node.kv.get(AGENT_URL)
    if url is None:
        raise NotReached(f"it reports no agent: its kv has no {AGENT_URL}")
    origin = origin_of(url)
    if origin is None:
        raise NotReached(f"its {AGENT_URL} {url!a} is no URL of a daemon, such as {EXAMPLE}")
    if context.agent_key is not None and not is_loopback_address(origin.host):
        raise NotReached(
            f"its agent is at {url!a}, and the key of the registry goes only to agents at a"
            " loopback address such as 127.0.0.1",
            hint=f"give agents keys of their own: {AGENT_KEY_STEP}",
        )
    if origin.scheme == "https" and not is_host(node.hostname):
        raise NotReached("its hostname has a part of more than 63 characters, which no TLS takes")
    if origin.scheme == "http" and not _agent_may_be_plain(origin.host, context):
        raise NotReached(
            f"its agent at {url!a} has no TLS, and the context does not allow the key to go there",
            hint=_plain_hint(
                origin.host,
                "set `node.advertise` of that agent to a URL with https:, or with an address",
            ),
        )
    if origin.scheme == "https" and context.ca is None:
        raise NotReached(
            f"its agent at {url!a} has TLS, and the context names no CA to know it by",
            hint="name the CA of the hosts: rollcall context set --ca FILE",
        )
    return origin


def check_agent_key(context: Context) -> None:
    """Require a key for agents, and that the key of a distant registry is none; WrongUsage."""
    if all(getattr(context, each) is None for each in AGENT_KEYS):
        raise WrongUsage("the context has no key for agents", hint=f"{AGENT_KEY_STEP}, {OTHERWISE}")
    if context.agent_key is not None and not is_local(context):
        raise WrongUsage(
            "agents get the key of the registry only beside a registry at a loopback address such"
            f" as 127.0.0.1, and not beside {context.registry}",
            hint=f"give agents keys of their own: {AGENT_KEY_STEP}",
        )


def checked_registry(url: str, context: Context) -> None:
    """Reject a URL of a registry that the key must not be sent to; WrongUsage."""
    origin = registry_of(url)
    if origin is None:
        raise WrongUsage("this is no URL of a registry, such as https://registry:7655")
    if origin.scheme == "http" and not registry_may_be_plain(origin.host, context):
        raise WrongUsage(
            f"{url} has no TLS, and the key would be readable on the way to it",
            hint=_plain_hint(
                origin.host,
                "log in with https://, or with an address and --allow-plain: rollcall login --help",
            ),
        )


def registry_may_be_plain(host: str, context: Context) -> bool:
    """Return whether the key may be sent to a registry there without TLS.

    A loopback address needs no permission: the operator typed it, and no node can choose it.
    """
    return is_loopback_address(host) or context.allows_plain(host)


def _agent_may_be_plain(host: str, context: Context) -> bool:
    return context.allows_plain(host) or (is_loopback_address(host) and is_local(context))


def is_local(context: Context) -> bool:
    """Return whether a context's registry is at a loopback address, as its agents may be then."""
    origin = registry_of(context.registry)
    return origin is not None and is_loopback_address(origin.host)


def _plain_hint(host: str, otherwise: str) -> str:
    if _is_address(host):
        return f"if that is safe: rollcall context set --allow-plain {host}"
    return otherwise


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def registry_of(url: str) -> Origin | None:
    """Return the parts of a registry's URL, which may have a path; None if it is no such URL."""
    found = REGISTRY.fullmatch(url)
    origin = None if found is None else origin_of(found["origin"])
    return None if found is None or origin is None else origin._replace(path=found["path"])


def origin_of(url: str) -> Origin | None:
    """Return the parts of a URL; None if it is more or less than scheme, host and port."""
    found = ORIGIN.fullmatch(url)
    if found is None:
        return None
    host = found["address"] or found["host"]
    if found["address"] is not None:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return None
    elif not is_host(host):
        return None
    port = None if found["port"] is None else int(found["port"])
    if port is not None and not 0 < port <= MAX_PORT:
        return None
    return Origin(found["scheme"], host, port)
