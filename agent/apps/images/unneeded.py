"""Removing the images that no app needs any more, of those that the agent pulled."""

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from agent.apps.admission.disk import DiskGuard
from agent.apps.context import AgentContext
from agent.apps.images.pulled import ImageUse, PulledImages
from agent.engine.errors import (
    AnswerTooLong,
    DiskFull,
    EngineError,
    EngineRejected,
    ImageUnavailable,
)
from agent.engine.logins import digest_of
from agent.engine.models import Image, ListedImage
from agent.model import App
from agent.state.database import StoreError
from agent.state.history import RevisionImage

LOOK_SECONDS = 60.0
Reason: TypeAlias = Literal["unneeded", "disk"]


class UnneededImages:
    """Removes the images of no revision, and, while the disk is full, old ones.

    An image stays if the agent did not pull it, if any container was made from it, or if somebody
    else gave it a tag.
    """

    def __init__(self, context: AgentContext, use: ImageUse, guard: DiskGuard) -> None:
        self._context = context
        self._use = use
        self._guard = guard
        self._logged = set[str]()

    async def remove(self) -> None:
        """Remove the images that neither a revision nor an app needs."""
        kept = {image.image_id for image in self._context.repository.revisions.all()}
        needed = kept | self._context.repository.needed_images()
        for image_id in self._context.repository.pulls.images.keys() - needed:
            await self._remove_unless_needed(image_id, "unneeded")

    async def look(self) -> None:
        """Remove what is not needed, and what the disk has no room for; note what is found.

        Raises:
            AnswerTooLong: the images cannot be listed, and are removed all the same.

        """
        await self.remove()
        if self._old_images():
            await self.free((await self._context.engine.info()).data_root)
        pulled = set(self._context.repository.pulls.images)
        images = {image.id: image for image in await self._context.engine.images()}
        gone = pulled - images.keys()
        if gone:  # somebody else may pull them again, and they are not ours then
            await self._context.repository.pulls.forget(gone)
        await self._complete(images)

    async def make_room(self) -> None:
        """Check that the disks have room for new data, and again after making some.

        Raises:
            DiskFull: there is too little.

        """
        root = (await self._context.engine.info()).data_root
        try:
            self._guard.check(root)
        except DiskFull:
            await self.free(root)
            self._guard.check(root)

    async def free(self, root: str) -> None:
        """Remove images of old revisions, the oldest first, as long as the disk is too full.

        ``root`` is the engine's directory. Those of present revisions stay.
        """
        for image_id in self._old_images():
            if not self._guard.is_short(root):
                return
            await self._remove_unless_needed(image_id, "disk")

    def _old_images(self) -> list[str]:
        """Return the pulled images that only former revisions need, the least recent first."""
        used = dict[str, tuple[str, int]]()
        for image in self._context.repository.revisions.all():
            if image.image_id is not None:
                at = (image.created_at, image.revision)
                used[image.image_id] = max(at, used.get(image.image_id, at))
        pulled = (
            self._context.repository.pulls.images.keys() - self._context.repository.needed_images()
        )
        return sorted(pulled & used.keys(), key=used.__getitem__)

    async def _remove_unless_needed(self, image_id: str, reason: Reason) -> None:
        """Remove an image, for the ``disk`` also that of a former revision.

        If the engine rejects, that is logged, and the image stays.
        """
        async with self._use.removal():
            # It may have become needed, or have been removed, since it was chosen.
            image = await self._context.engine.image(image_id)
            if image is None or await self._is_needed(image, reason):
                return
            try:
                removed = await self._remove(image)
            except EngineRejected as error:
                self._warn_once(image_id, str(error))
                return
            if removed:
                self._context.counters.images_removed.labels(reason).inc()
                self._context.log.info("image removed", image=image_id, reason=reason)
                await self._context.repository.pulls.forget([image_id])

    async def _is_needed(self, image: Image, reason: Reason) -> bool:
        kept = {each.image_id for each in self._context.repository.revisions.all()}
        needed = self._context.repository.needed_images() | (kept if reason != "disk" else set())
        if self._use.is_needed(image) or image.id in needed:
            return True
        return any(each.image_id == image.id for each in await self._context.engine.containers())

    async def _remove(self, image: Image) -> bool:
        tags = self._context.repository.pulls.images.get(image.id)
        if tags is None:
            return False
        if not image.tags <= tags:
            self._warn_once(image.id, "it has a tag that the agent did not give it")
            return False
        with suppress(ImageUnavailable):
            # By its id, the engine removes only an image with a single tag.
            for tag in sorted(image.tags)[1:]:
                await self._context.engine.remove_image(tag)
            await self._context.engine.remove_image(image.id)
        return True

    def _warn_once(self, image_id: str, reason: str) -> None:
        if image_id not in self._logged:
            self._logged.add(image_id)
            self._context.log.warning("image not removed yet", image=image_id, reason=reason)

    async def _complete(self, images: Mapping[str, ListedImage]) -> None:
        """Record the digests of revisions that were written without, as for upgraded apps."""
        for app in self._context.repository.existing():
            image = self._context.repository.revisions.image(app)
            if image is not None and image.digest is None:
                found = await self._found(app, image, images)
                if found != image:
                    await self._context.repository.put_image(found)

    async def _found(
        self, app: App, image: RevisionImage, images: Mapping[str, ListedImage]
    ) -> RevisionImage:
        image_id = image.image_id
        if image_id is None and app.container_id is not None:
            with suppress(EngineError):
                image_id = (await self._context.engine.inspect(app.container_id)).image_id
        listed = images.get(image_id or "")
        digest = digest_of(app.image, listed.digests) if listed is not None else None
        return msgspec.structs.replace(image, image_id=image_id, digest=digest)


class ImageCollector:
    """Removes images that nobody needs: after each operation, and once a minute.

    A removal that failed is tried again then.
    """

    def __init__(
        self, context: AgentContext, pulled: PulledImages, unneeded: UnneededImages
    ) -> None:
        self._log = context.log
        self._pulled = pulled
        self._unneeded = unneeded
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
            await self._logged(self._pulled.finish_interrupted())
            await self._logged(self._unneeded.remove())

    async def _look_each_minute(self) -> None:
        while True:
            await self._logged(self._pulled.finish_interrupted())
            await self._logged(self._unneeded.look())
            await asyncio.sleep(LOOK_SECONDS)

    async def _logged(self, work: Awaitable[None]) -> None:
        try:
            await work
        except AnswerTooLong as error:
            self._log.warning("images not listed", reason=str(error))
        except (EngineError, StoreError) as error:
            self._log.debug("images not collected", reason=str(error))
        except Exception as error:  # it goes on with the next look
            self._log.error("collecting images failed", exc_info=error)
