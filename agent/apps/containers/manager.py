"""Making, finding and removing the containers of apps."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.app_label import app_from_label
from agent.apps.containers.commands import ContainerCommands
from agent.apps.containers.spec import (
    ContainerPlanner,
    check_image,
    unknown_user,
    with_note,
)
from agent.apps.containers.volumes import Volumes
from agent.apps.errors import InvalidApp
from agent.apps.ownership.labels import APP_LABEL, OPERATION_LABEL
from agent.apps.ownership.ownership import Ownership
from agent.engine.errors import (
    EngineConflict,
    EngineRefused,
    InvalidParameter,
    NameInUse,
    NoCommand,
    ObjectNotFound,
)
from agent.engine.logins import digest_of
from agent.engine.models import Container, ContainerSpec, Image, InspectedContainer
from agent.journal import CreateEntry, JournalEntry, ReplaceEntry
from agent.model import App, with_image

UP_STATES = frozenset({"running", "restarting", "paused"})
# The engine is removing it, or failed to: nothing else can be done with it.
GONE_STATES = frozenset({"removing", "dead"})


class ContainerManager:
    """The containers of this agent's apps.

    Every method may raise EngineUnavailable; then it is unknown what happened.
    """

    def __init__(
        self,
        *,
        commands: ContainerCommands,
        ownership: Ownership,
        volumes: Volumes,
        planner: ContainerPlanner,
        log: FilteringBoundLogger,
    ) -> None:
        self.commands = commands
        self._engine = commands.engine
        self.ownership = ownership
        self._volumes = volumes
        self._planner = planner
        self._log = log

    async def of_app(self, app: str) -> list[Container]:
        """List the containers labelled with an app that are this agent's."""
        found = await self._engine.containers(label=f"{APP_LABEL}={app}")
        return await self.ownership.own(found)

    async def inspect(self, container: Container) -> InspectedContainer:
        """Inspect a container; ObjectNotFound."""
        return await self._engine.inspect(container.id)

    async def read_app(self, container: InspectedContainer, **fields: Any) -> App:
        """Return the app of a container: as its labels have it, and with these fields.

        A volume in its map that is not this agent's, or is another app's, is left out.

        Raises:
            msgspec.MsgspecError: a label cannot be read.

        """
        app = app_from_label(container, **fields)
        volumes = await self._volumes.ours(app.name, app.volumes)
        return msgspec.structs.replace(app, volumes=volumes)

    async def current(self, app: App) -> InspectedContainer | None:
        """Inspect the app's container; None if it is gone, or about to be.

        Raises:
            AppOfAnother: another agent has adopted it.

        """
        if app.container_id is None:
            return None
        try:
            seen = await self._engine.inspect(app.container_id)
        except ObjectNotFound:
            return None
        await self.ownership.check(app.name, seen)
        return seen if seen.state not in GONE_STATES else None

    async def create(
        self, entry: CreateEntry | ReplaceEntry, image: Image, *, name: str
    ) -> tuple[App, str]:
        """Create the container of the entry's target, beside any other that the app has.

        Its volumes are created first: one that the engine creates by itself would lack our labels.
        A container that the operation has made before, and whose answer was lost, is used.

        Returns:
            The app with its map of volumes and its image, and the container's id.

        Raises:
            NameTaken: a volume of a name that is needed is not ours.
            InvalidApp: there is no program to run.
            UnfitImage: the image cannot be used for apps.
            NameInUse: another container has the name.
            NetworkUnfit: the network of apps does not isolate them.
            AppOfAnother: another agent has adopted the identity of this one.

        """
        self.ownership.check_agent()
        check_image(image, entry.target.image)
        # The server of the record's reference: others may have the same image.
        known = with_image(entry.target, image.id).image_digest
        digest = known or digest_of(entry.target.image, image.digests)
        target = msgspec.structs.replace(entry.target, image_id=image.id, image_digest=digest)
        lost = await self._volumes.lost(target)
        app = await self._volumes.prepare(msgspec.structs.replace(entry, target=target), image)
        spec = with_note(await self._planner.plan(app, entry.id, name=name, image=image), lost)
        try:
            container_id = await self._create(entry, spec, image)
        except NoCommand as error:
            raise InvalidApp(
                f"the image `{app.image}` names no program to run; set `command`"
            ) from error
        new = self._volumes.made_empty(entry, spec.volumes) if image.user else []
        if new and not await self._engine.give(container_id, new, image.user):
            await self.remove(container_id)
            container_id = await self._create(entry, with_note(spec, unknown_user(image)), image)
        return app, container_id

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
        ]

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
            await self.commands.remove(container_id)

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

    async def set_autostart(self, container: Container, *, enabled: bool) -> None:
        """Set whether the engine starts a container by itself; EngineRefused."""
        await self.commands.set_autostart(container.id, enabled=enabled)

    async def remove_volumes(self, app: str, names: Collection[str]) -> None:
        """Remove volumes that an app has no longer; what a container still uses stays."""
        try:
            await self._volumes.remove(app, names)
        except EngineConflict as error:
            self._log.warning("old volume not removed: it is in use", app=app, reason=str(error))

    async def stop(self, container: Container, target: App | None = None) -> None:
        """Stop a container, paused or not, if it is there; kill it after ``stop_seconds``.

        They are those of its app as it is, or as it will be: ``target``.
        """
        with suppress(ObjectNotFound):
            await self.commands.stop(container.id, self._planner.stop_seconds(container, target))

    async def stop_for_good(self, container: Container) -> None:
        """Stop a container as above, and keep the engine from starting it by itself.

        If the engine fails to note that, such as on a full disk, the agent tries again later.
        """
        await self.stop(container)
        try:
            with suppress(ObjectNotFound):
                await self.set_autostart(container, enabled=False)
        except EngineRefused as error:
            app = container.labels.get(APP_LABEL)
            self._log.warning("restart policy not changed yet", app=app, reason=str(error))

    async def pause(self, container: Container) -> None:
        """Pause a container; EngineConflict."""
        await self.commands.pause(container.id)

    async def unpause(self, container: Container) -> None:
        """Unpause a container."""
        await self.commands.unpause(container.id)

    async def rename(self, container_id: str, name: str) -> bool:
        """Rename a container, if it is there; return False if another one holds the name."""
        with suppress(ObjectNotFound):
            if not await self._has_name(container_id, name):
                try:
                    await self._engine.rename(container_id, name)
                except (NameInUse, InvalidParameter):
                    # The engine may carry out an earlier request late, and refuses this one then.
                    return await self._has_name(container_id, name)
        return True

    async def _has_name(self, container_id: str, name: str) -> bool:
        return (await self._engine.inspect(container_id)).name == name

    async def limit(self, container_id: str, limits: App) -> None:
        """Set the limits of an app in a container, running or not, if it is there."""
        with suppress(ObjectNotFound):
            await self.commands.limit(container_id, cpu=limits.cpu, memory=limits.memory)

    async def used_memory(self, container_id: str) -> int | None:
        """Return the bytes of memory that a container uses, None where they are unknown."""
        sample = await self._engine.sample(container_id, priority=True)
        return sample.memory_bytes if sample is not None else None
