"""How this host reaches a registry: URL, key, certificates and client."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import urlsplit

from config.address import is_loopback
from registry.client.client import ClientTls, Node
from registry.message import Heartbeat


class RegistryApi(Protocol):
    """A client of one registry, as far as reporting needs it. Requests raise RegistryError."""

    async def __aenter__(self) -> Self:
        """Open the client."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close its connection."""
        ...

    async def report(self, hostname: str, heartbeat: Heartbeat) -> Node:
        """Send a heartbeat and return the node as the registry has it now."""
        ...

    async def forget(
        self, hostname: str, *, agent_id: str | None = None, key: str | None = None
    ) -> None:
        """Delete a node; with ``agent_id`` only if no other identity has the name."""
        ...


@dataclass(frozen=True, kw_only=True)
class RegistryConnection:
    """The connection to one registry.

    ``key`` returns the present API key and raises BadFile. ``client`` has to be opened before use,
    as a context manager; ``client_tls`` are the TLS files that it uses, None without TLS.
    """

    url: str
    key: Callable[[], str]
    client_tls: ClientTls | None
    client: RegistryApi

    @property
    def sends_key_unencrypted(self) -> bool:
        """Whether the key travels over a network without TLS."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")
