"""From the settings under ``node`` to the host that the registries are told of."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from agent.reporting.heartbeat import AGENT_KV_KEYS, Host
from config.address import listen_address
from config.agent import AgentSettings
from registry.message import Heartbeat, HostnameInvalid, label_error, normalise_hostname

DEFAULT_PORTS = {"http": 80, "https": 443}


class NodeInvalid(Exception):
    """The settings describe no node that a registry would take; the text begins with the path."""


@dataclass(frozen=True)
class AgentAddress:
    """Where this host is reached: its name, and the agent's URL and port."""

    hostname: str
    url: str
    port: int
    tls: bool


def address(
    settings: AgentSettings, *, system_hostname: str, port: int | None = None
) -> AgentAddress:
    """Find out where this host is reached; ``port`` is the one listened on, once that is known.

    Raises:
        NodeInvalid: the hostname or the advertised address cannot be used.

    """
    try:
        hostname = normalise_hostname(settings.node.hostname or system_hostname)
    except HostnameInvalid as error:
        given = settings.node.hostname or f"not set, and the system calls itself {system_hostname}"
        raise NodeInvalid(f"node.hostname: is `{given}`; {error}") from error
    port = port or listen_address(settings.listen)[1]
    scheme = "https" if settings.tls else "http"
    return _advertised(settings.node.advertise or f"{scheme}://{hostname}:{port}", hostname)


def _advertised(url: str, hostname: str) -> AgentAddress:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise NodeInvalid(f"node.advertise: `{url}`: {error}") from error
    if not port or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise NodeInvalid(
            f"node.advertise: `{url}` is no address of an agent; "
            f"write http://HOST:PORT, such as http://{hostname}:7656"
        )
    return AgentAddress(hostname, url, port, tls=parts.scheme == "https")


def check_node(settings: AgentSettings) -> None:
    """Raise NodeInvalid where a registry would refuse the labels or the kv."""
    for index, label in enumerate(settings.node.labels):
        fault = label_error(label)
        if fault is not None:
            raise NodeInvalid(f"node.labels[{index}]: {fault}")
    for key in settings.node.kv:
        if key in AGENT_KV_KEYS:
            raise NodeInvalid(f"node.kv: `{key}` is told by the agent itself; choose another key")
    kv = {**settings.node.kv, **dict.fromkeys(AGENT_KV_KEYS, "")}
    try:
        msgspec.convert({"labels": settings.node.labels, "kv": kv}, Heartbeat)
        msgspec.json.encode([settings.node.labels, settings.node.kv])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise NodeInvalid(f"node: {error}") from error


def build_host(
    settings: AgentSettings,
    *,
    agent_address: AgentAddress,
    file_labels: Callable[[], Iterable[str]],
    facts: Mapping[str, str],
    warn: Callable[[str], None],
) -> Host:
    """Make the host, with ``facts`` beside the configured kv, ``file_labels`` beside the labels."""
    return Host(
        labels=settings.node.labels,
        dynamic_labels=file_labels,
        kv=settings.node.kv,
        facts={**facts, "agent.url": agent_address.url},
        port=agent_address.port,
        tls=agent_address.tls,
        warn=warn,
    )
