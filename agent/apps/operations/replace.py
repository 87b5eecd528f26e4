"""Replacing an app's container by another, so that one of the two always remains.

The new container is made beside the old one; the old one is drained and stopped, and the new one
started and watched until it has settled. A replacement that is interrupted before that is undone.
One that is interrupted later, or while it drains, is finished. Its entry in the journal says which.
"""

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.containers.readiness import Requirement
from agent.apps.errors import AppError
from agent.apps.host import Host
from agent.apps.operations.before_stop import check_and_drain
from agent.apps.operations.create import make_container
from agent.apps.operations.data import make_restored, unused_volumes
from agent.apps.requests import Rebuild, Restore
from agent.apps.runner.job import Job
from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.engine.models import Container
from agent.journal import ReplacedEntry, ReplaceEntry
from agent.model import App, is_left_down, not_started


async def plan_rebuild(host: Host, job: Job, _request: Rebuild) -> ReplaceEntry:
    """Plan to pull the app's image and replace its container.

    Raises:
        ImageNotAllowed, DiskFull, MemoryPromised: it cannot be replaced.

    """
    app = msgspec.structs.replace(host.context.repository.get(job.app), down=None)
    await host.admission.check_image(app.image)
    await host.admission.check_disk()
    return await planned_replacement(host, job, app, await host.containers.current(app))


async def planned_recreation(host: Host, job: Job, target: App) -> ReplaceEntry:
    """Plan a container for an app that has none; DiskFull, MemoryPromised."""
    await host.admission.check_disk()
    return await planned_replacement(host, job, target, None)


async def planned_replacement(
    host: Host, job: Job, target: App, container: Container | None
) -> ReplaceEntry:
    """Plan to replace an app's present container, None if it is gone, by one of ``target``.

    The new one has the image that the target names by its id, unless that is None, or for a rebuild
    a newer version.

    Raises:
        MemoryPromised: there is none for an app whose creation failed.

    """
    before = host.context.repository.get(job.app)
    if before.failed:
        await host.admission.check_memory(target)
    return ReplaceEntry(
        header=job.header,
        before=before,
        target=msgspec.structs.replace(target, failed=False),
        was_running=container is not None and container.state in UP_STATES,
    )


async def carry_out_replacement(host: Host, job: Job, entry: ReplaceEntry) -> None:
    """Replace the container of an app.

    Raises:
        ImageUnavailable, DiskFull, StartFailed, PortInUse, NoSuchUser, InvalidData,
            OperationCancelled: the app is as it was, and runs if it did.
        EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

    """
    try:
        if isinstance(job.request, Restore):
            made, container_id = await make_restored(host, entry, job.request.tar)
        else:
            target, container_id = await make_container(host, job, entry)
            made = _with_volumes(host, entry, target)
        replaced = await _swap(host, job, made, container_id)
    except (AppError, EngineRejected) as error:
        # Why a tar is not taken is no matter of the app.
        is_of_tar = isinstance(job.request, Restore)
        await _undo(host, entry, error, entry.before.message if is_of_tar else str(error))
        raise
    await _clean_up(host, replaced)


def _with_volumes(host: Host, entry: ReplaceEntry, target: App) -> ReplaceEntry:
    """Return the entry with its target as it was made, and the volumes that were made for it."""
    journalled = host.context.repository.entry(entry.app)
    latest = journalled if isinstance(journalled, ReplaceEntry) else entry
    return msgspec.structs.replace(latest, target=target)


async def _swap(host: Host, job: Job, entry: ReplaceEntry, container_id: str) -> ReplacedEntry:
    """Stop the old container of an app, and start the new one, which is made of the target."""
    before, target = entry.before, entry.target
    old = await host.containers.current(before)
    if old is not None and old.state in UP_STATES:  # a stopped app may have been started by now
        # A pull may have taken long, and what is stopped now could not be started again.
        following = container_id if starts(entry) else None
        entry = await check_and_drain(host, job, entry, old, following)
        # Who gives an app more time to end means the end of this container, too.
        await host.containers.stop(old, target)
    if starts(entry):
        app = await host.containers.start(
            target,
            container_id,
            set_password=True,
            requirement=requirement(entry, old),
            overdue=job.end_if_asked,
        )
    else:
        app = not_started_yet(target, container_id)
    replaced = ReplacedEntry(
        header=entry.header,
        withdrawn_at=entry.withdrawn_at,
        target=app,
        container_id=container_id,
        old_container_id=before.container_id,
        old_volumes=unused_volumes(entry),
    )
    await host.context.repository.advance(replaced)
    return replaced


def starts(entry: ReplaceEntry) -> bool:
    """Return whether the new container is started."""
    target = entry.target
    return target.desired == "running" and (entry.was_running or not is_left_down(target))


def not_started_yet(app: App, container_id: str | None) -> App:
    """Return an app whose new container is not started."""
    return msgspec.structs.replace(
        app,
        container_id=container_id,
        password_pending=app.password is not None,
        message=None,
    )


async def _clean_up(host: Host, entry: ReplacedEntry) -> None:
    # An old container that the engine fails to remove does not matter to the app.
    unremoved = None
    if entry.old_container_id is not None:
        unremoved = await host.containers.remove_or_stop(entry.old_container_id)
    # If another container holds the name, the sweeper warns of it and tries again.
    await host.containers.rename(entry.container_id, entry.app)
    await host.containers.remove_volumes(entry.app, entry.old_volumes)
    await host.context.repository.finish(entry, entry.target, undone=unremoved, kept_data={})


async def _undo(host: Host, entry: ReplaceEntry, error: Exception, message: str | None) -> None:
    # A new container that the engine fails to remove must not keep the old one from running.
    await host.containers.undo_or_stop(entry)
    before = msgspec.structs.replace(entry.before, message=message)
    if entry.was_running:
        before = await _restart(host, before)
    await host.context.repository.finish(entry, before, undone=entry.id, error=error)


async def _restart(host: Host, app: App) -> App:
    """Start the old container, if it is down; return the app as it is then."""
    old = await host.containers.current(app)
    if old is not None and old.state not in UP_STATES:
        try:
            await host.containers.start(app, old.id, set_password=False)
        except (AppError, EngineRejected) as error:
            # It is shown as long as the app is down, and the message from then on.
            return not_started(app, error)
    return app


async def recover_replacement(host: Host, job: Job, entry: ReplaceEntry | ReplacedEntry) -> None:
    """Finish a replacement whose new container is the app's, or which drains; undo any other."""
    if isinstance(entry, ReplacedEntry):
        await _clean_up(host, entry)
    elif (container_id := await _to_swap(host, entry)) is not None:
        try:
            replaced = await _swap(host, job, entry, container_id)
        except (AppError, EngineRejected) as error:
            await _undo(host, entry, error, str(error))
            raise
        await _clean_up(host, replaced)
    else:
        broken_off = EngineUnavailable(f"the {entry.header.operation} was interrupted")
        await _undo(host, entry, broken_off, str(broken_off))


async def _to_swap(host: Host, entry: ReplaceEntry) -> str | None:
    """Return the new container of a replacement that drains, None where it does not."""
    if entry.withdrawn_at is None or not entry.target.drain_seconds:
        return None
    old = await host.containers.current(entry.before)
    if old is None or old.state != "running":
        return None
    made = await host.containers.made_by(entry)
    return made[0].id if made else None


def requirement(entry: ReplaceEntry, old: Container | None) -> Requirement:
    """Return what the new container must show; ``old`` is as it was before it was stopped."""
    if entry.header.operation not in ("update", "rebuild", "rollback"):
        return Requirement.START
    unhealthy = old is not None and old.health == "unhealthy"
    return Requirement.REPLACEMENT_OF_UNHEALTHY if unhealthy else Requirement.REPLACEMENT
