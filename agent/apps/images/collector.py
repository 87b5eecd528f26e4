"""Collecting the images that no app needs any more, of those that the agent pulled."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.disk import DiskGuard
from agent.apps.images.pulled import PulledImages
from agent.apps.images.remover import ImageRemover
from agent.apps.repository.repository import AppRepository
from agent.engine.errors import EngineError
from agent.engine.logins import digest_of
from agent.engine.models import ListedImage
from agent.engine.protocol import Engine
from agent.model import App
from agent.state.history import RevisionImage
from agent.state.store import StoreError

LOOK_SECONDS = 60.0


class ImageCollector:
    """Removes images that nobody needs: after each operation, and once a minute.

    A removal that failed is tried again then. ``pulled`` finds the images of pulls that broke off.
    """

    def __init__(
        self, *, unneeded: "UnneededImages", pulled: PulledImages, log: FilteringBoundLogger
    ) -> None:
        self._unneeded = unneeded
        self._pulled = pulled
        self._log = log
        self._operation_ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to look."""
        work = (self._look_after_operations(), self._look_each_minute())
        self._tasks = [asyncio.create_task(each, name="collect images") for each in work]

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def operation_ended(self) -> None:
        """Look again soon."""
        self._operation_ended.set()

    async def _look_after_operations(self) -> None:
        while True:
            await self._operation_ended.wait()
            self._operation_ended.clear()
            # A busy engine soon forgets what it pulled.
            await self._logged(self._pulled.finish_broken_off())
            await self._logged(self._unneeded.remove())

    async def _look_each_minute(self) -> None:
        while True:
            await self._logged(self._pulled.finish_broken_off())
            await self._logged(self._unneeded.look())
            await asyncio.sleep(LOOK_SECONDS)

    async def _logged(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (EngineError, StoreError) as error:
            self._log.debug("images not collected", reason=str(error))
        except Exception as error:  # it goes on with the next look
            self._log.error("collecting images failed", exc_info=error)


class UnneededImages:
    """Chooses the images to remove: those of no revision, and, while the disk is full, old ones."""

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        remover: ImageRemover,
        disk_guard: DiskGuard,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._remover = remover
        self._disk_guard = disk_guard

    async def remove(self) -> None:
        """Remove the images that neither a revision nor an app needs."""
        kept = {image.image_id for image in self._repository.revisions.all()}
        needed = kept | self._repository.needed_images()
        for image_id in self._repository.pulls.images.keys() - needed:
            await self._remover.remove(image_id, "unneeded")

    async def look(self) -> None:
        """Remove what is not needed, and what the disk has no room for; note what is found."""
        pulled = set(self._repository.pulls.images)
        images = {image.id: image for image in await self._engine.images()}
        gone = pulled - images.keys()
        if gone:  # somebody else may pull them again, and they are not ours then
            await self._repository.pulls.forget(gone)
        await self._complete(images)
        await self.remove()
        if self._old_images():
            await self.free((await self._engine.info()).data_root)

    async def free(self, root: str) -> None:
        """Remove images of old revisions, the oldest first, as long as the disk is too full.

        ``root`` is the engine's directory. Those of present revisions stay.
        """
        for image_id in self._old_images():
            if not self._disk_guard.is_short(root):
                return
            await self._remover.remove(image_id, "disk")

    def _old_images(self) -> list[str]:
        """Return the pulled images that only former revisions need, the least recent first."""
        used = dict[str, tuple[str, int]]()
        for image in self._repository.revisions.all():
            if image.image_id is not None:
                at = (image.created_at, image.revision)
                used[image.image_id] = max(at, used.get(image.image_id, at))
        pulled = self._repository.pulls.images.keys() - self._repository.needed_images()
        return sorted(pulled & used.keys(), key=used.__getitem__)

    async def _complete(self, images: Mapping[str, ListedImage]) -> None:
        """Record the digests of revisions that were written without, as for upgraded apps."""
        for app in self._repository.existing():
            image = self._repository.revisions.image(app)
            if image is not None and image.digest is None:
                found = await self._found(app, image, images)
                if found != image:
                    await self._repository.put_image(found)

    async def _found(
        self, app: App, image: RevisionImage, images: Mapping[str, ListedImage]
    ) -> RevisionImage:
        image_id = image.image_id
        if image_id is None and app.container_id is not None:
            with suppress(EngineError):
                image_id = (await self._engine.inspect(app.container_id)).image_id
        listed = images.get(image_id or "")
        digest = digest_of(app.image, listed.digests) if listed is not None else None
        return msgspec.structs.replace(image, image_id=image_id, digest=digest)
