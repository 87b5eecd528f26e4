"""Replacing an app's container by another, so that one of the two always remains."""

import msgspec

from agent.apps.admission import Admission
from agent.apps.containers.images import Images
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.containers.starter import ContainerStarter
from agent.apps.errors import AppError
from agent.apps.operations.runner import Job
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, EngineRefused, EngineUnavailable, Image
from agent.model import App, ReplacedEntry, ReplaceEntry


class RebuildOperation:
    """Pulls an app's image and replaces its container; other operations replace containers by it.

    The new container is made beside the old one; the old one is stopped, and the new one started.
    Up to there the replacement is undone if it breaks off, from there on it is finished: the type
    of the entry in the journal tells.
    """

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        images: Images,
        containers: ContainerManager,
        starter: ContainerStarter,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._images = images
        self._containers = containers
        self._starter = starter

    async def run(self, job: Job) -> None:
        """Pull the app's image and replace its container; errors as of ``replace``."""
        app = self._repository.get(job.app)
        await self._admission.check_disk()
        await self.replace(job, app, await self._containers.current(app), must_pull=True)

    async def recreate(self, job: Job, target: App) -> None:
        """Make a container for an app that has none; errors as of ``replace``."""
        await self._admission.check_disk()
        await self.replace(job, target, None, must_pull=False)

    async def replace(
        self, job: Job, target: App, container: Container | None, *, must_pull: bool
    ) -> None:
        """Replace an app's present container, None if it is gone, by one made from ``target``.

        Raises:
            ImageUnavailable, DiskFull, StartFailed, PortInUse, NoSuchUser, OperationCancelled: the
                app is as it was, and runs if it did.
            EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

        """
        before = self._repository.get(job.app)
        if container is not None and target.image == before.image:
            target = msgspec.structs.replace(target, image_id=container.image_id)
        entry = ReplaceEntry(
            header=job.header,
            before=before,
            target=target,
            was_running=container is not None and container.state in UP_STATES,
        )
        await job.commit(entry)
        try:
            replaced = await self._swap(job, entry, must_pull=must_pull)
        except (AppError, EngineRefused) as error:
            await self._undo(entry, error)
            raise
        await self._clean_up(replaced)

    async def _swap(self, job: Job, entry: ReplaceEntry, *, must_pull: bool) -> ReplacedEntry:
        before = entry.before
        image = await self._image(job, entry, must_pull=must_pull)
        # The name of an app has no capital letters, so no other app has this one.
        name = f"{entry.app}.NEXT-{entry.id[:8]}"
        target, container_id = await self._containers.create(entry, image, name=name)
        old = await self._containers.current(before)
        if old is not None and old.state in UP_STATES:  # a stopped app may have been started by now
            await self._containers.stop(old)
        if target.desired == "running":
            app = await self._starter.start(target, container_id, set_password=True)
        else:
            app = msgspec.structs.replace(
                target,
                container_id=container_id,
                password_pending=target.password is not None,
                failed=False,
                message=None,
            )
        replaced = ReplacedEntry(
            header=entry.header,
            target=app,
            container_id=container_id,
            old_container_id=before.container_id,
        )
        await self._repository.advance(replaced)
        return replaced

    async def _image(self, job: Job, entry: ReplaceEntry, *, must_pull: bool) -> Image:
        """Return the image to use: a new version only for a new reference, or if it must be."""
        target = entry.target
        with job.pulling() as progress:
            if must_pull or target.image_id is None:
                return await self._images.fetch(
                    target.image, policy=target.pull, must_pull=must_pull, progress=progress
                )
            return await self._images.of_version(
                target.image, target.image_id, policy=target.pull, progress=progress
            )

    async def _clean_up(self, entry: ReplacedEntry) -> None:
        # An old container that the engine fails to remove does not matter to the app.
        unremoved = None
        if entry.old_container_id is not None:
            unremoved = await self._containers.remove_or_stop(entry.old_container_id)
        # If another container holds the name, the sweeper warns of it and tries again.
        await self._containers.rename(entry.container_id, entry.app)
        await self._repository.finish(entry, entry.target, undone=unremoved, kept_data={})

    async def _undo(self, entry: ReplaceEntry, error: Exception) -> None:
        # A new container that the engine fails to remove must not keep the old one from running.
        await self._containers.undo_or_stop(entry)
        message = str(error)
        if entry.was_running:
            message += await self._restart(entry.before)
        before = msgspec.structs.replace(entry.before, message=message)
        await self._repository.finish(entry, before, undone=entry.id)

    async def _restart(self, app: App) -> str:
        """Start the old container, if it is down; return what to add to the message."""
        old = await self._containers.current(app)
        if old is not None and old.state not in UP_STATES:
            try:
                await self._starter.start(app, old.id, set_password=False)
            except (AppError, EngineRefused) as error:
                return f"; and back as it was: {error}"
        return ""

    async def recover(self, _job: Job, entry: ReplaceEntry | ReplacedEntry) -> None:
        """Finish a replacement whose new container is the app's, and undo any other."""
        if isinstance(entry, ReplacedEntry):
            await self._clean_up(entry)
        else:
            await self._undo(entry, EngineUnavailable(f"the {entry.header.operation} broke off"))
