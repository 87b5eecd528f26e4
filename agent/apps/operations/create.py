"""Creating an app: all of it, or nothing of it."""

from functools import partial

import msgspec

from agent.apps.admission.admission import Admission, name_taken
from agent.apps.containers.manager import UP_STATES, ContainerManager
from agent.apps.containers.starter import ContainerStarter
from agent.apps.errors import AppError, OperationCancelled
from agent.apps.images.images import AppImages
from agent.apps.repository.repository import AppRepository
from agent.apps.runner.job import Job
from agent.apps.runner.runner import CANCELLING
from agent.engine.errors import EngineRefused, EngineUnavailable, NameInUse
from agent.engine.models import Image
from agent.journal import CreateEntry, EntryHeader
from agent.model import App, NewApp, with_image


class CreateOperation:
    """Creates an app and sees it run."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        admission: Admission,
        images: AppImages,
        containers: ContainerManager,
        starter: ContainerStarter,
    ) -> None:
        self._repository = repository
        self.admission = admission
        self._images = images
        self._containers = containers
        self._starter = starter

    async def run(self, job: Job, wanted: NewApp) -> None:
        """Create an app.

        Raises:
            InvalidApp, AppExists, NameTaken, PortInUse, NoFreePort, DiskFull, ImageUnavailable,
            StartFailed: nothing of it is left. One in the background is kept as failed, with the
                reason.
            OperationCancelled: nothing of it is left, also in the background.
            EngineUnavailable: the outcome is unknown; it is recovered when the engine is back.

        """
        app = await self.admission.new_app(
            wanted, now=job.header.since, picked_ports_only=job.picked_ports_only
        )
        entry = CreateEntry(header=job.header, target=app)
        await job.commit(entry)
        await self._carry_out(job, entry)

    async def _carry_out(
        self, job: Job, entry: CreateEntry, container_id: str | None = None
    ) -> None:
        app = entry.target
        try:
            if container_id is None:
                app, container_id = await self._make_container(job, entry)
            app = await self._starter.start(app, container_id, set_password=True)
        except (AppError, EngineRefused) as error:
            await self._undo(entry, error)
            raise
        await self._repository.finish(entry, app, kept_data={})

    async def _make_container(self, job: Job, entry: CreateEntry) -> tuple[App, str]:
        app = entry.target

        async def fetch() -> Image:
            with job.pulling() as progress:
                return await self._images.fetch(
                    app.image, policy=app.pull, must_pull=False, progress=progress
                )

        create = partial(self._containers.create, entry, name=app.name)
        try:
            return await self._images.with_fetched(app.image, fetch=fetch, create=create)
        except NameInUse as error:
            raise name_taken(app.name) from error

    async def _undo(self, entry: CreateEntry, error: Exception) -> None:
        await self._containers.undo(entry)
        failed = None
        if entry.header.background and not isinstance(error, OperationCancelled):
            # Volumes that were kept from before are not the failed app's: they stay without it.
            failed = msgspec.structs.replace(
                with_image(entry.target, None), volumes={}, failed=True, message=str(error)
            )
        await self._repository.finish(entry, failed, undone=entry.id, error=error)

    async def recover(self, job: Job, entry: CreateEntry) -> None:
        """Finish a creation whose container runs, and undo any other.

        One in the background is begun again instead, unless the job is to delete or stop the app:
        those end a pull, and would wait for another one.
        """
        made = await self._containers.made_by(entry)
        running = [each for each in made if each.state in UP_STATES]
        if running:
            target = with_image(entry.target, running[0].image_id)
            made_of = msgspec.structs.replace(entry, target=target)
            await self._carry_out(job, made_of, running[0].id)
        elif entry.header.background and job.header.operation in CANCELLING:
            await self._undo(entry, _not_begun_again(job.header))
        elif entry.header.background:
            await self._containers.remove_made_by(entry)
            # Otherwise a later operation waits for this recovery.
            if job.header.id == entry.header.id:
                job.committed.set()
            await self._carry_out(job, entry)
        else:
            await self._undo(entry, EngineUnavailable("the creation broke off"))


def _not_begun_again(header: EntryHeader) -> OperationCancelled:
    return OperationCancelled(
        f"the create of app `{header.app}` broke off, and was not begun again because of a"
        f" {header.operation} that `{header.by}` asked for; ask again if it is still wanted"
    )
