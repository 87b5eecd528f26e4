"""Removes single images, after checking again that nobody needs them."""

from contextlib import suppress
from typing import Literal, TypeAlias

from structlog.typing import FilteringBoundLogger

from agent.apps.counters import AppCounters
from agent.apps.images.pulled import ImageUse
from agent.apps.repository.repository import AppRepository
from agent.engine.errors import EngineRefused, ImageUnavailable
from agent.engine.models import ListedImage
from agent.engine.protocol import Engine

Reason: TypeAlias = Literal["unneeded", "disk"]


class ImageRemover:
    """Removes single images, if nobody needs them.

    An image stays if the agent did not pull it, if any container was made from it, or if somebody
    else gave it a tag.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        use: ImageUse,
        counters: AppCounters,
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._use = use
        self._counters = counters
        self._log = log
        self._logged = set[str]()

    async def remove(self, image_id: str, reason: Reason) -> None:
        """Remove an image, unless it is needed; for the ``disk``, also that of a former revision.

        If the engine refuses, that is logged, and the image stays.
        """
        async with self._use.removal():
            # It may have become needed, or have been removed, since it was chosen.
            image = {each.id: each for each in await self._engine.images()}.get(image_id)
            if image is None or await self._is_needed(image, reason):
                return
            try:
                removed = await self._remove(image)
            except EngineRefused as error:
                self._warn_once(image_id, str(error))
                return
            if removed:
                self._counters.images_removed.labels(reason).inc()
                self._log.info("image removed", image=image_id, reason=reason)
                await self._repository.pulls.forget([image_id])

    async def _is_needed(self, image: ListedImage, reason: Reason) -> bool:
        kept = {each.image_id for each in self._repository.revisions.all()}
        needed = self._repository.needed_images() | (kept if reason != "disk" else set())
        if self._use.is_needed(image) or image.id in needed:
            return True
        return any(each.image_id == image.id for each in await self._engine.containers())

    async def _remove(self, image: ListedImage) -> bool:
        tags = self._repository.pulls.images.get(image.id)
        if tags is None:
            return False
        if not image.tags <= tags:
            self._warn_once(image.id, "it has a tag that the agent did not give it")
            return False
        with suppress(ImageUnavailable):
            # By its id, the engine removes only an image with a single tag.
            for tag in sorted(image.tags)[1:]:
                await self._engine.remove_image(tag)
            await self._engine.remove_image(image.id)
        return True

    def _warn_once(self, image_id: str, reason: str) -> None:
        if image_id not in self._logged:
            self._logged.add(image_id)
            self._log.warning("image not removed yet", image=image_id, reason=reason)
