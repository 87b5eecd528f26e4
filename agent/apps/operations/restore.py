"""Replaces the data of an app by a tar, whole or not at all."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection

import msgspec

from agent.apps.admission.admission import Admission
from agent.apps.archives.access import DataAccess
from agent.apps.containers.data import restored_volume_name
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.errors import AppError, AppNotStopped
from agent.apps.operations.rebuild import RebuildOperation
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.engine.errors import EngineRefused
from agent.engine.models import (
    MIB,
    Container,
    Image,
)
from agent.journal import ReplacedEntry, ReplaceEntry
from agent.model import App

# The bytes that are written between two checks of the free space.
LOOK_BYTES = 64 * MIB


class RestoreOperation:
    """Fills new volumes from a tar, and makes them the app's.

    The mounts of a container cannot change, so the container is replaced. If the operation breaks
    off before that, all that it made is removed; later, the old container and volumes are.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        containers: ContainerManager,
        data: DataAccess,
        rebuild: RebuildOperation,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._containers = containers
        self._data = data
        self._rebuild = rebuild

    async def run(self, job: Job, *, tar: AsyncIterator[bytes]) -> None:
        """Replace the data of an app's paths by that of the tar; paths that it lacks stay.

        Raises:
            AppNotStopped, DataMissing, DataInUse: nothing of the tar was read.
            InvalidData, DiskFull, AppError, EngineRefused: everything is as it was.
            EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

        """
        app = self._repository.get(job.app)
        container = await self._stopped(app)
        volumes = await self._data.volumes(app)
        await self._check_unused(app, volumes.values())
        await self._admission.check_disk()
        image = await self._data.image(app, container)
        new = {
            path: restored_volume_name(app.name, path, operation=job.header.id) for path in volumes
        }
        entry = ReplaceEntry(
            header=job.header, before=app, target=app, new_volumes=tuple(new.values())
        )
        await job.commit(entry)
        try:
            filled = await self._fill(entry, image, new, tar)
            replaced = await self._replace(entry, image, volumes, new, filled)
        except (AppError, EngineRefused) as error:
            await self._containers.undo_or_stop(entry)
            await self._repository.finish(entry, app, undone=entry.id, error=error)
            raise
        await self._rebuild.recover(job, replaced)

    async def _stopped(self, app: App) -> Container | None:
        container = await self._containers.current(app)
        if app.desired == "stopped" and (container is None or container.state not in UP_STATES):
            return container
        raise AppNotStopped(f"app `{app.name}` is not stopped; stop it before its data is replaced")

    async def _check_unused(self, app: App, volumes: Collection[str]) -> None:
        """Refuse to replace volumes that others use: they could not be removed afterwards."""
        await self._data.check_unused(app.name, volumes, own={app.container_id})

    async def _fill(
        self, entry: ReplaceEntry, image: Image, new: dict[str, str], tar: AsyncIterator[bytes]
    ) -> set[str]:
        helper = await self._data.open_to_fill(entry, image, new)
        filled = await self._data.fill(helper, self._while_there_is_room(tar))
        await self._data.close(helper)
        return filled

    async def _while_there_is_room(self, tar: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        taken = 0
        async for chunk in tar:
            taken += len(chunk)
            if taken >= LOOK_BYTES:
                await self._admission.check_disk()
                taken = 0
            yield chunk

    async def _replace(
        self,
        entry: ReplaceEntry,
        image: Image,
        volumes: dict[str, str],
        new: dict[str, str],
        filled: set[str],
    ) -> ReplacedEntry:
        before = entry.before
        # Somebody may have started the container by hand, or mounted the volumes elsewhere.
        await self._stopped(before)
        await self._check_unused(before, [volumes[path] for path in filled])
        chosen = {path: new[path] if path in filled else volumes[path] for path in volumes}
        target = msgspec.structs.replace(before, volumes=chosen)
        entry = msgspec.structs.replace(entry, target=target)
        await self._repository.advance(entry)
        # The name of an app has no capital letters, so no other app has this one.
        name = f"{entry.app}.NEXT-{entry.id[:8]}"
        target, container_id = await self._containers.create(entry, image, name=name)
        replaced = ReplacedEntry(
            header=entry.header,
            target=msgspec.structs.replace(
                target,
                container_id=container_id,
                password_pending=target.password is not None,
                message=None,
            ),
            container_id=container_id,
            old_container_id=before.container_id,
            old_volumes=_unused({*volumes.values(), *new.values()}, target),
        )
        await self._repository.advance(replaced)
        return replaced


def _unused(volumes: set[str], app: App) -> tuple[str, ...]:
    return tuple(sorted(volumes - set(app.volumes.values())))
