"""How this host reaches its registries: URLs, keys, certificates and clients."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from clients.registry import RegistryClient
from clients.tls import ClientTls, is_loopback_address
from runtime.certificates import expiries


@dataclass(frozen=True, kw_only=True)
class RegistryGroup:
    """The clients of one entry of `registries`: alternatives, of which one is used at a time.

    They are opened before use. ``key`` returns the present API key and raises BadFile.
    ``client_tls`` are the TLS files of all clients, None without TLS.
    """

    clients: Sequence[RegistryClient]
    key: Callable[[], str]
    client_tls: ClientTls | None

    @property
    def urls(self) -> list[str]:
        """The URLs of the registries."""
        return [client.url for client in self.clients]

    def alternatives(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the URL of each registry, and those of the others."""
        for url in self.urls:
            yield url, [other for other in self.urls if other != url]

    def ordered_for(self, agent_id: str) -> "RegistryGroup":
        """Return the group in the order in which this agent prefers the registries.

        The order is a pseudo-random permutation that depends on identity and URLs alone (rendezvous
        hashing). So a fleet is spread evenly, the agents of a registry that fails are spread evenly
        over the others, and a URL that is added or removed changes no other agent's choice.
        """

        def rank(client: RegistryClient) -> bytes:
            return sha256(f"{agent_id} {client.url}".encode()).digest()

        return replace(self, clients=sorted(self.clients, key=rank))


def sends_key_unencrypted(url: str) -> bool:
    """Return whether the key for a URL travels over a network without TLS."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme == "http" and host != "localhost" and not is_loopback_address(host)


@asynccontextmanager
async def registry_clients(
    groups: Iterable[RegistryGroup], log: FilteringBoundLogger
) -> AsyncIterator[None]:
    """Keep the clients of the registries open while the context is."""
    async with AsyncExitStack() as stack:
        for client in (each for group in groups for each in group.clients):
            if sends_key_unencrypted(client.url):
                log.warning(
                    "the key for this registry travels unencrypted: use https", registry=client.url
                )
            await stack.enter_async_context(client)
        yield


class CertificateMonitor:
    """Checks the TLS files of each group of registries at each ``tick``.

    A fault is logged once, at the second tick that finds it: at the first one the renewal may be
    half written.
    """

    def __init__(self, groups: Iterable[RegistryGroup], *, log: FilteringBoundLogger) -> None:
        self._files = [
            (", ".join(group.urls), group.client_tls)
            for group in groups
            if group.client_tls is not None
        ]
        self._log = log
        self._seen: dict[str, str] = {}
        self._logged: dict[str, str] = {}

    def expiries(self) -> dict[Path, float]:
        """Return when the files that are in use expire, as Unix times."""
        found: dict[Path, float] = {}
        for _, client_tls in self._files:
            found |= expiries(client_tls.validities)
        return found

    async def tick(self) -> None:
        """Load the files that changed, and log new faults and their ends."""
        for urls, client_tls in self._files:
            fault = client_tls.renew()
            if fault is None:
                self._forget(urls)
            elif self._seen.get(urls) == fault != self._logged.get(urls):
                self._logged[urls] = fault
                self._log.warning(
                    "renewed certificate files cannot be used, the old ones stay in use",
                    registry=urls,
                    reason=fault,
                )
            else:
                self._seen[urls] = fault

    def _forget(self, urls: str) -> None:
        self._seen.pop(urls, None)
        if self._logged.pop(urls, None) is not None:
            self._log.info("certificate files can be used again", registry=urls)
