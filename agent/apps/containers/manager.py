"""Making, finding and removing the containers of apps."""

from contextlib import suppress
from dataclasses import replace

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.containers.data import AGENT_LABEL, APP_LABEL, OPERATION_LABEL
from agent.apps.containers.spec import build_container_spec, check_image_labels, stop_seconds
from agent.apps.containers.volumes import Volumes
from agent.apps.defaults import AppDefaults
from agent.apps.repository import AppRepository
from agent.engine.protocol import (
    Container,
    ContainerSpec,
    Engine,
    EngineRefused,
    Image,
    InspectedContainer,
    InvalidParameter,
    NameInUse,
    ObjectNotFound,
)
from agent.model import App, CreateEntry, JournalEntry, ReplaceEntry

UP_STATES = frozenset({"running", "restarting", "paused"})
# The engine is removing it, or failed to: nothing else can be done with it.
GONE_STATES = frozenset({"removing", "dead"})


class ContainerManager:
    """The containers that this agent made.

    Every method may raise EngineUnavailable; then it is unknown what happened.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        volumes: Volumes,
        defaults: AppDefaults,
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._volumes = volumes
        self._defaults = defaults
        self._log = log

    async def all(self) -> list[Container]:
        """List the containers of all apps, made by this agent or not."""
        return await self._engine.containers(label=APP_LABEL)

    async def of_app(self, app: str) -> list[Container]:
        """List the containers labelled with an app, made by this agent or not."""
        return await self._engine.containers(label=f"{APP_LABEL}={app}")

    async def current(self, app: App) -> InspectedContainer | None:
        """Inspect the app's container; None if it is gone, or about to be."""
        if app.container_id is not None:
            with suppress(ObjectNotFound):
                seen = await self._engine.inspect(app.container_id)
                return seen if seen.state not in GONE_STATES else None
        return None

    async def create(
        self, entry: CreateEntry | ReplaceEntry, image: Image, *, name: str
    ) -> tuple[App, str]:
        """Create the container of the entry's target, beside any other that the app has.

        Its volumes are created first: one that the engine creates by itself would lack our labels.
        If the operation has made the container before, and the answer was lost, it is that one.

        Returns:
            The app with its map of volumes and its image, and the container's id.

        Raises:
            NameTaken: a volume of a name that is needed is not ours.
            UnfitImage: the image cannot be used for apps.
            NameInUse: another container has the name.

        """
        check_image_labels(image, entry.target.image)
        app = await self._volumes.prepare(entry, image)
        spec = build_container_spec(
            app,
            entry.id,
            name=name,
            image=image,
            reference=app.image,
            host=await self._engine.info(),
            agent=self._repository.agent,
            defaults=self._defaults,
        )
        container_id = await self._create(entry, spec, image)
        return msgspec.structs.replace(app, image_id=image.id), container_id

    async def _create(self, entry: JournalEntry, spec: ContainerSpec, image: Image) -> str:
        """Create a container of this image: by the reference, or by the id if the tag has moved."""
        by_id = replace(spec, image=image.id)
        here = await self._engine.image(spec.image)
        if here is None or here.id != image.id:
            return await self._create_once(entry, by_id)
        container_id = await self._create_once(entry, spec)
        # The tag may have moved just now.
        if (await self._engine.inspect(container_id)).image_id == image.id:
            return container_id
        await self.remove(container_id)
        return await self._create_once(entry, by_id)

    async def _create_once(self, entry: JournalEntry, spec: ContainerSpec) -> str:
        try:
            return await self._engine.create(spec)
        except NameInUse:
            made = [each for each in await self.made_by(entry) if each.name == spec.name]
            if not made:
                raise
            return made[0].id

    async def made_by(self, entry: JournalEntry) -> list[Container]:
        """List the containers that an operation made."""
        return [
            each
            for each in await self.of_app(entry.app)
            if each.labels.get(OPERATION_LABEL) == entry.id
            and each.labels.get(AGENT_LABEL) == self._repository.agent
        ]

    def is_orphan(self, container: Container) -> bool:
        """Return whether an operation made it that was undone or replaced by another."""
        return self._repository.is_undone(container.labels.get(OPERATION_LABEL, ""))

    async def remove_made_by(self, entry: JournalEntry) -> None:
        """Remove the containers that an operation made."""
        for container in await self.made_by(entry):
            await self.remove(container.id)

    async def undo(self, entry: JournalEntry) -> None:
        """Remove all that an operation made, volumes included."""
        await self.remove_made_by(entry)
        await self._volumes.undo(entry)

    async def undo_or_stop(self, entry: JournalEntry) -> None:
        """Remove all that an operation made; stop what the engine fails to remove."""
        try:
            await self.undo(entry)
        except EngineRefused as error:
            self._log.warning("container not removed yet", app=entry.app, reason=str(error))
            for container in await self.made_by(entry):
                await self.stop(container)

    async def remove(self, container_id: str) -> None:
        """Remove a container, if it is there."""
        with suppress(ObjectNotFound):
            await self._engine.remove(container_id)

    async def remove_or_stop(self, container_id: str) -> str | None:
        """Remove a container, if it is there; stop it if the engine fails to remove it.

        Returns:
            None, or the id of the operation that made the container which is only stopped.

        """
        try:
            await self.remove(container_id)
        except EngineRefused as error:
            with suppress(ObjectNotFound):
                container = await self._engine.inspect(container_id)
                app = container.labels.get(APP_LABEL)
                self._log.warning("container not removed yet", app=app, reason=str(error))
                await self.stop(container)
                return container.labels.get(OPERATION_LABEL)
        return None

    async def stop(self, container: Container) -> None:
        """Stop a container, paused or not, if it is there; kill it after ``stop_seconds``."""
        app = self._repository.find(container.labels.get(APP_LABEL, ""))
        seconds = stop_seconds(app, self._defaults) if app else self._defaults.stop_seconds
        with suppress(ObjectNotFound):
            await self._engine.stop(container.id, seconds)

    async def unpause(self, container: Container) -> None:
        """Unpause a container."""
        await self._engine.unpause(container.id)

    async def rename(self, container_id: str, name: str) -> bool:
        """Rename a container, if it is there; return False if another one holds the name."""
        with suppress(ObjectNotFound):
            if not await self._has_name(container_id, name):
                try:
                    await self._engine.rename(container_id, name)
                except (NameInUse, InvalidParameter):
                    # The engine may do late what it was asked to before, and refuses it then.
                    return await self._has_name(container_id, name)
        return True

    async def _has_name(self, container_id: str, name: str) -> bool:
        return (await self._engine.inspect(container_id)).name == name

    async def limit(self, container_id: str, limits: App) -> None:
        """Set the limits of an app in a container, running or not, if it is there."""
        with suppress(ObjectNotFound):
            await self._engine.limit(container_id, cpu=limits.cpu, memory=limits.memory)

    async def used_memory(self, container_id: str) -> int | None:
        """Return the bytes of memory that a container uses, None where they are unknown."""
        sample = await self._engine.sample(container_id, priority=True)
        return sample.memory_bytes if sample is not None else None
