"""What the engine does with volumes."""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from agent.engine.connection import Connection, Lane
from agent.engine.protocol import Container, ObjectNotFound
from agent.engine.translation import understood
from agent.engine.wire import LISTING, from_listing


class Volumes:
    """The part of an engine that has to do with volumes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Give a volume's labels, None if there is no such volume."""
        try:
            volume = await self._connection.call(lambda client: client.inspect_volume(name))
        except ObjectNotFound:
            return None
        with understood():
            return dict(volume.get("Labels") or {})

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers that a volume is mounted in."""
        return await self._listed({"volume": [name]})

    async def _listed(
        self, filters: Mapping[str, list[str]], *, seconds: float | None = None
    ) -> list[Container]:
        query = quote(msgspec.json.encode(filters))
        path = f"/containers/json?all=1&filters={query}"
        entries = await self._connection.get(path, LISTING, seconds=seconds)
        return [from_listing(entry) for entry in entries]

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a volume with the engine's own driver and no options."""
        await self._connection.call(lambda client: client.create_volume(name, labels=dict(labels)))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and what is in it."""
        try:
            await self._connection.call(lambda client: client.remove_volume(name), lane=Lane.SLOW)
        except ObjectNotFound:
            return
