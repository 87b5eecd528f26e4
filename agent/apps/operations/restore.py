"""Replaces the data of an app by a tar, whole or not at all.

The operation fills new volumes from the tar, and makes them the app's. The mounts of a container
cannot change, so the container is replaced. If the operation breaks off before that, all that it
made is removed; later, the old container and volumes are.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.containers.data import restored_volume_name
from agent.apps.errors import AppError, AppNotStopped
from agent.apps.host import Host
from agent.apps.operations.rebuild import recover_replacement
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


async def restore(host: Host, job: Job, *, tar: AsyncIterator[bytes]) -> None:
    """Replace the data of an app's paths by that of the tar; paths that it lacks stay.

    Raises:
        AppNotStopped, DataMissing, DataInUse: nothing of the tar was read.
        InvalidData, DiskFull, AppError, EngineRefused: everything is as it was.
        EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

    """
    app = host.context.repository.get(job.app)
    container = await _stopped(host, app)
    volumes = await host.data.volumes(app)
    await _check_unused(host, app, volumes.values())
    await host.admission.check_disk()
    image = await host.data.image(app, container)
    new = {path: restored_volume_name(app.name, path, operation=job.header.id) for path in volumes}
    entry = ReplaceEntry(header=job.header, before=app, target=app, new_volumes=tuple(new.values()))
    await job.commit(entry)
    try:
        filled = await _fill(host, entry, image, new, tar)
        replaced = await _replace(host, entry, image, volumes, new=new, filled=filled)
    except (AppError, EngineRefused) as error:
        await host.containers.undo_or_stop(entry)
        await host.context.repository.finish(entry, app, undone=entry.id, error=error)
        raise
    await recover_replacement(host, job, replaced)


async def _stopped(host: Host, app: App) -> Container | None:
    container = await host.containers.current(app)
    if app.desired == "stopped" and (container is None or container.state not in UP_STATES):
        return container
    raise AppNotStopped(f"app `{app.name}` is not stopped; stop it before its data is replaced")


async def _check_unused(host: Host, app: App, volumes: Collection[str]) -> None:
    """Refuse to replace volumes that others use: they could not be removed afterwards."""
    await host.data.check_unused(app.name, volumes, own={app.container_id})


async def _fill(
    host: Host, entry: ReplaceEntry, image: Image, new: dict[str, str], tar: AsyncIterator[bytes]
) -> set[str]:
    helper = await host.data.open_to_fill(entry, image, new)
    filled = await host.data.fill(helper, _while_there_is_room(host, tar))
    await host.data.close(helper)
    return filled


async def _while_there_is_room(host: Host, tar: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    taken = 0
    async for chunk in tar:
        taken += len(chunk)
        if taken >= LOOK_BYTES:
            await host.admission.check_disk()
            taken = 0
        yield chunk


async def _replace(
    host: Host,
    entry: ReplaceEntry,
    image: Image,
    volumes: dict[str, str],
    *,
    new: dict[str, str],
    filled: set[str],
) -> ReplacedEntry:
    before = entry.before
    # Somebody may have started the container by hand, or mounted the volumes elsewhere.
    await _stopped(host, before)
    await _check_unused(host, before, [volumes[path] for path in filled])
    chosen = {path: new[path] if path in filled else volumes[path] for path in volumes}
    target = msgspec.structs.replace(before, volumes=chosen)
    entry = msgspec.structs.replace(entry, target=target)
    await host.context.repository.advance(entry)
    # The name of an app has no capital letters, so no other app has this one.
    name = f"{entry.app}.NEXT-{entry.id[:8]}"
    target, container_id = await host.containers.create(entry, image, name=name)
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
    await host.context.repository.advance(replaced)
    return replaced


def _unused(volumes: set[str], app: App) -> tuple[str, ...]:
    return tuple(sorted(volumes - set(app.volumes.values())))
