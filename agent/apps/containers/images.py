"""The images that apps are made of: one pull of an image, however many wait for it."""

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from agent.engine.protocol import Engine, Image, ImageUnavailable, PullProgress


class _Pull:
    """A pull that runs, and the callers that wait for it."""

    def __init__(self, engine: Engine, reference: str) -> None:
        self.watchers: list[Callable[[PullProgress], None]] = []
        self.latest: PullProgress | None = None
        self.task = asyncio.create_task(engine.pull(reference, self.report))

    def add(self, watcher: Callable[[PullProgress], None]) -> None:
        self.watchers.append(watcher)
        if self.latest is not None:
            watcher(self.latest)

    def report(self, progress: PullProgress) -> None:
        self.latest = progress
        for watcher in self.watchers:
            watcher(progress)


class Images:
    """The images that apps are made of."""

    def __init__(self, *, engine: Engine, log: FilteringBoundLogger) -> None:
        self._engine = engine
        self._log = log
        self._pulls: dict[str, _Pull] = {}

    async def fetch(
        self, reference: str, *, must_pull: bool, progress: Callable[[PullProgress], None]
    ) -> Image:
        """Pull the image, unless it was built on this host; call ``progress`` while that lasts.

        If the pull fails and not ``must_pull``, an image that is on this host is used.

        Raises:
            ImageUnavailable: it cannot be pulled; the text holds the engine's words.
            DiskFull: there is no space for it.

        """
        here = await self._engine.image(reference)
        if reference.startswith("sha256:"):  # no server has images by their id alone
            return here or await self.present(reference)
        if here is not None and here.local:
            return here
        try:
            await self._pull(reference, progress)
        except ImageUnavailable as error:
            if here is None or must_pull:
                raise ImageUnavailable(f"the image `{reference}` cannot be had: {error}") from error
            self._log.warning("image not pulled, the one on this host is used", image=reference)
            return here
        return await self.present(reference)

    async def of_version(
        self, reference: str, image_id: str, *, progress: Callable[[PullProgress], None]
    ) -> Image:
        """Return the image that an app runs, wherever its reference leads by now.

        If it is not on this host any more, it is pulled, unless there is a new version.

        Raises:
            ImageUnavailable: it cannot be had.
            DiskFull: there is no space for it.

        """
        here = await self._engine.image(image_id)
        if here is not None:
            return here
        fetched = await self.fetch(reference, must_pull=False, progress=progress)
        if fetched.id != image_id:
            raise ImageUnavailable(
                f"the image that the app runs ({image_id}) is not on this host any more, and"
                f" `{reference}` is another one now; rebuild the app to take that"
            )
        return fetched

    async def present(self, reference: str) -> Image:
        """Return an image that is on this host; ImageUnavailable when it is not."""
        image = await self._engine.image(reference)
        if image is None:
            raise ImageUnavailable(f"the image `{reference}` is not on this host")
        return image

    async def _pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        pull = self._pulls.get(reference)
        if pull is None:
            pull = self._pulls[reference] = _Pull(self._engine, reference)
            pull.task.add_done_callback(lambda _: self._pulls.pop(reference))
        pull.add(progress)
        await asyncio.shield(pull.task)

    async def close(self) -> None:
        """Cancel the pulls that run."""
        tasks = [pull.task for pull in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
