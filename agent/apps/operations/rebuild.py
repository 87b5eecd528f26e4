"""Replacing an app's container by another, so that one of the two always remains.

The new container is made beside the old one; the old one is drained and stopped, and the new one
started and watched until it has settled. A replacement that breaks off before that is undone, one
that breaks off later is finished, and so is one that breaks off while it drains. Its entry in the
journal says which.
"""

from functools import partial

import msgspec

from agent.apps.containers.containers import UP_STATES
from agent.apps.containers.readiness import Requirement
from agent.apps.errors import AppError
from agent.apps.host import Host
from agent.apps.operations.drain import drain
from agent.apps.runner.job import Job
from agent.engine.errors import EngineRefused, EngineUnavailable
from agent.engine.models import Container, Image
from agent.journal import ReplacedEntry, ReplaceEntry
from agent.model import App, is_left_down, not_started


async def rebuild(host: Host, job: Job) -> None:
    """Pull the app's image and replace its container.

    Raises:
        ImageNotAllowed, DiskFull: the app is as it was.
        AppError, EngineError: as of ``replace_container``.

    """
    app = msgspec.structs.replace(host.context.repository.get(job.app), down=None)
    await host.admission.check_image(app.image)
    await host.admission.check_disk()
    await replace_container(host, job, app, await host.containers.current(app), must_pull=True)


async def recreate(host: Host, job: Job, target: App) -> None:
    """Make a container for an app that has none; errors as of ``replace_container``."""
    await host.admission.check_disk()
    await replace_container(host, job, target, None, must_pull=False)


async def replace_container(
    host: Host, job: Job, target: App, container: Container | None, *, must_pull: bool
) -> None:
    """Replace an app's present container, None if it is gone, by one made from ``target``.

    The new one has the image that the target names by its id, unless that is None, or with
    ``must_pull`` a newer version.

    Raises:
        ImageUnavailable, DiskFull, StartFailed, PortInUse, NoSuchUser, OperationCancelled: the
            app is as it was, and runs if it did.
        MemoryPromised: there is none for an app whose creation failed.
        EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

    """
    before = host.context.repository.get(job.app)
    if before.failed:
        # No await between this check and the commit, or another app could take the memory.
        await host.admission.check_memory(target)
    entry = ReplaceEntry(
        header=job.header,
        before=before,
        target=msgspec.structs.replace(target, failed=False),
        was_running=container is not None and container.state in UP_STATES,
    )
    await job.commit(entry)
    try:
        made, container_id = await _make(host, job, entry, must_pull=must_pull)
        replaced = await _swap(host, job, made, container_id)
    except (AppError, EngineRefused) as error:
        await _undo(host, entry, error)
        raise
    await _clean_up(host, replaced)


async def _make(
    host: Host, job: Job, entry: ReplaceEntry, *, must_pull: bool
) -> tuple[ReplaceEntry, str]:
    """Make the new container; return its id, and the entry with its image and volumes."""
    # The name of an app has no capital letters, so no other app has this one.
    name = f"{entry.app}.NEXT-{entry.id[:8]}"
    target, container_id = await host.images.with_fetched(
        entry.target.image,
        fetch=partial(_image, host, job, entry, must_pull=must_pull),
        create=partial(host.containers.create, entry, name=name),
    )
    journalled = host.context.repository.entry(entry.app)
    if isinstance(journalled, ReplaceEntry):  # it names the volumes that the operation made
        entry = journalled
    return msgspec.structs.replace(entry, target=target), container_id


async def _swap(host: Host, job: Job, entry: ReplaceEntry, container_id: str) -> ReplacedEntry:
    """Stop the old container of an app, and start the new one, which is made of the target."""
    before, target = entry.before, entry.target
    old = await host.containers.current(before)
    if old is not None and old.state in UP_STATES:  # a stopped app may have been started by now
        entry = await drain(host, job, entry, target, old)
        # A pull may have taken long, and what is stopped now could not be started again.
        await host.admission.check_disk()
        # Who gives an app more time to end means the end of this container, too.
        await host.containers.stop(old, target)
    if target.desired == "running" and (entry.was_running or not is_left_down(target)):
        requirement = _requirement(entry, old)
        app = await host.containers.start(
            target,
            container_id,
            set_password=True,
            requirement=requirement,
            overdue=job.end_if_asked,
        )
    else:
        app = msgspec.structs.replace(
            target,
            container_id=container_id,
            password_pending=target.password is not None,
            message=None,
        )
    replaced = ReplacedEntry(
        header=entry.header,
        withdrawn_at=entry.withdrawn_at,
        target=app,
        container_id=container_id,
        old_container_id=before.container_id,
    )
    await host.context.repository.advance(replaced)
    return replaced


async def _image(host: Host, job: Job, entry: ReplaceEntry, *, must_pull: bool) -> Image:
    """Return the image to use: a new version only for a new reference, or if it must be."""
    target = entry.target
    with job.pulling() as progress:
        if must_pull or target.image_id is None:
            return await host.images.fetch(
                target.image, app=target, must_pull=must_pull, progress=progress
            )
        return await host.images.of_version(target, target.image_id, progress=progress)


async def _clean_up(host: Host, entry: ReplacedEntry) -> None:
    # An old container that the engine fails to remove does not matter to the app.
    unremoved = None
    if entry.old_container_id is not None:
        unremoved = await host.containers.remove_or_stop(entry.old_container_id)
    # If another container holds the name, the sweeper warns of it and tries again.
    await host.containers.rename(entry.container_id, entry.app)
    await host.containers.remove_volumes(entry.app, entry.old_volumes)
    await host.context.repository.finish(entry, entry.target, undone=unremoved, kept_data={})


async def _undo(host: Host, entry: ReplaceEntry, error: Exception) -> None:
    # A new container that the engine fails to remove must not keep the old one from running.
    await host.containers.undo_or_stop(entry)
    before = msgspec.structs.replace(entry.before, message=str(error))
    if entry.was_running:
        before = await _restart(host, before)
    await host.context.repository.finish(entry, before, undone=entry.id, error=error)


async def _restart(host: Host, app: App) -> App:
    """Start the old container, if it is down; return the app as it is then."""
    old = await host.containers.current(app)
    if old is not None and old.state not in UP_STATES:
        try:
            await host.containers.start(app, old.id, set_password=False)
        except (AppError, EngineRefused) as error:
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
        except (AppError, EngineRefused) as error:
            await _undo(host, entry, error)
            raise
        await _clean_up(host, replaced)
    else:
        await _undo(host, entry, EngineUnavailable(f"the {entry.header.operation} broke off"))


async def _to_swap(host: Host, entry: ReplaceEntry) -> str | None:
    """Return the new container of a replacement that drains, None where it does not."""
    if entry.withdrawn_at is None or not entry.target.drain_seconds:
        return None
    old = await host.containers.current(entry.before)
    if old is None or old.state != "running":
        return None
    made = await host.containers.made_by(entry)
    return made[0].id if made else None


def _requirement(entry: ReplaceEntry, old: Container | None) -> Requirement:
    """Return what the new container must show; ``old`` is as it was before it was stopped."""
    if entry.header.operation not in ("update", "rebuild", "rollback"):
        return Requirement.START
    unhealthy = old is not None and old.health == "unhealthy"
    return Requirement.REPLACEMENT_OF_UNHEALTHY if unhealthy else Requirement.REPLACEMENT
