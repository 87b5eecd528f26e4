"""The nodes of a registry, by a watch and by requests beside it."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from registry.client.client import RegistryClient
from registry.client.watch import NodeEvent, NodeWatch


class RegistryNodes:
    """The nodes that pass some filters; a NodeSource.

    The watch holds the connection of its client, so the requests beside it have another one.
    ``filters`` are those of the watch, as arguments of ``RegistryClient.nodes``.
    """

    def __init__(
        self, watch: NodeWatch, client: RegistryClient, filters: Mapping[str, Any]
    ) -> None:
        self._watch = watch
        self._client = client
        self._filters = filters

    def events(self) -> AsyncIterator[NodeEvent]:
        """Return the events of the watch."""
        return self._watch.events()

    async def hostnames(self) -> set[str]:
        """Return the names of all nodes. Raises RegistryError."""
        return {node.hostname for node in await self._client.nodes(**self._filters)}

    async def warming_seconds(self) -> float:
        """Return for how long the registry warms up. Raises RegistryError."""
        return (await self._client.status()).warming_seconds
