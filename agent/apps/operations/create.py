"""Creating an app: all of it, or nothing of it."""

from functools import partial

import msgspec

from agent.apps.admission.admission import name_taken
from agent.apps.containers.containers import UP_STATES
from agent.apps.errors import AppError, OperationCancelled
from agent.apps.host import Host
from agent.apps.requests import KINDS, Create
from agent.apps.runner.job import Job
from agent.engine.errors import (
    EngineRejected,
    EngineUnavailable,
    ImageUnavailable,
    NameInUse,
)
from agent.engine.models import Image
from agent.journal import CreateEntry, EntryHeader, ReplaceEntry
from agent.model import App, with_image


async def plan_create(host: Host, job: Job, request: Create) -> CreateEntry:
    """Plan the creation of an app; errors as of ``Admission.new_app``."""
    app = await host.admission.new_app(
        request.wanted, now=job.header.since, picked_ports_only=job.picked_ports_only
    )
    return CreateEntry(header=job.header, target=app)


async def carry_out_create(host: Host, job: Job, entry: CreateEntry) -> None:
    """Create an app.

    Raises:
        NameTaken, PortInUse, DiskFull, ImageUnavailable, StartFailed: nothing of it is left. One in
            the background is kept as failed, with the reason.
        OperationCancelled: nothing of it is left, also in the background.
        EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

    """
    try:
        app, container_id = await make_container(host, job, entry)
        await _start(host, entry, app, container_id)
    except NameInUse as error:
        taken = name_taken(entry.app)
        await _undo(host, entry, taken)
        raise taken from error
    except (AppError, EngineRejected) as error:
        await _undo(host, entry, error)
        raise


async def _start(host: Host, entry: CreateEntry, app: App, container_id: str) -> None:
    app = await host.containers.start(app, container_id, set_password=True)
    await host.context.repository.finish(entry, app, kept_data={})


async def make_container(
    host: Host, job: Job, entry: CreateEntry | ReplaceEntry
) -> tuple[App, str]:
    """Have the image of an app, and make its container; return the app with it, and its id.

    Both are repeated if the image was removed in between. This agent does not remove it meanwhile;
    others may, such as another agent on this engine. Errors as of ``AppImages.find`` and
    ``Containers.create``.
    """
    async with host.images.use.needed(entry.target.image):
        image = await _image(host, job, entry)
        try:
            async with host.images.use.needed(image.id):
                return await host.containers.create(entry, image)
        except ImageUnavailable as error:
            host.context.log.warning(
                "image gone, fetched again", image=entry.target.image, reason=str(error)
            )
        image = await _image(host, job, entry)
        async with host.images.use.needed(image.id):
            return await host.containers.create(entry, image)


async def _image(host: Host, job: Job, entry: CreateEntry | ReplaceEntry) -> Image:
    """Return the image to use: a new version only for a new reference, or for a rebuild."""
    must_pull = entry.header.operation == "rebuild"
    with job.pulling() as progress:
        pull = partial(host.images.pull, app=entry.target, progress=progress)
        return await host.images.find(entry.target, must_pull=must_pull, pull=pull)


async def _undo(host: Host, entry: CreateEntry, error: Exception) -> None:
    await host.containers.undo(entry)
    failed = None
    if entry.header.background and not isinstance(error, OperationCancelled):
        # Volumes that an earlier delete kept are not the failed app's: they stay without it.
        failed = msgspec.structs.replace(
            with_image(entry.target, None), volumes={}, failed=True, message=str(error)
        )
    await host.context.repository.finish(entry, failed, undone=entry.id, error=error)


async def recover_create(host: Host, job: Job, entry: CreateEntry) -> None:
    """Finish a creation whose container runs, and undo any other.

    One in the background is begun again instead, unless the job is to delete or stop the app:
    those end a pull, and would wait for another one.
    """
    made = await host.containers.made_by(entry)
    running = [each for each in made if each.state in UP_STATES]
    if running:
        app = with_image(entry.target, running[0].image_id)
        try:
            await _start(host, entry, app, running[0].id)
        except (AppError, EngineRejected) as error:
            await _undo(host, entry, error)
            raise
    elif not entry.header.background:
        await _undo(host, entry, EngineUnavailable("the creation was interrupted"))
    elif KINDS[job.header.operation].cancels:
        await _undo(host, entry, _not_begun_again(job.header))
    else:
        await host.containers.remove_made_by(entry)
        # Otherwise a later operation waits for this recovery.
        if job.header.id == entry.header.id:
            job.committed.set()
        await carry_out_create(host, job, entry)


def _not_begun_again(header: EntryHeader) -> OperationCancelled:
    return OperationCancelled(
        f"the create of app `{header.app}` was interrupted, and was not repeated because of a"
        f" {header.operation} that `{header.by}` asked for; ask again if it is still wanted"
    )
