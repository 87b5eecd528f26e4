"""The volume of each app, which holds its data."""

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.containers.spec import APP_LABEL, volume_labels, volume_name
from agent.apps.errors import NameTaken
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, Engine, EngineConflict
from agent.model import CreateEntry, JournalEntry, ReplaceEntry


class Volumes:
    """The volumes of apps."""

    def __init__(
        self, *, engine: Engine, repository: AppRepository, log: FilteringBoundLogger
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._log = log

    async def create(self, entry: CreateEntry | ReplaceEntry) -> None:
        """Create the volume of the entry's app, if there is none; NameTaken if it is not ours."""
        name = volume_name(entry.app)
        labels = await self._engine.volume_labels(name)
        if labels is None:
            await self._repository.advance(msgspec.structs.replace(entry, new_volume=True))
            await self._engine.create_volume(name, volume_labels(entry.app))
        elif labels.get(APP_LABEL) != entry.app:
            raise NameTaken(f"there is a volume `{name}` that is not the agent's; rename it")

    async def remove(self, app: str) -> None:
        """Remove the app's volume, if there is one and it is ours; EngineConflict if it is used."""
        name = volume_name(app)
        labels = await self._engine.volume_labels(name)
        if labels is not None and labels.get(APP_LABEL) == app:
            await self._engine.remove_volume(name)

    async def undo(self, entry: JournalEntry) -> None:
        """Remove the volume that an operation made.

        One that another container uses by now stays: the next app of that name gets it.
        """
        latest = self._repository.entry(entry.app)
        if (
            isinstance(latest, CreateEntry | ReplaceEntry)
            and latest.id == entry.id
            and latest.new_volume
        ):
            try:
                await self.remove(entry.app)
            except EngineConflict as error:
                self._log.warning("new volume left alone", app=entry.app, reason=str(error))

    async def users(self, app: str) -> list[Container]:
        """List the containers, running or not, that use the app's volume."""
        return await self._engine.volume_users(volume_name(app))
