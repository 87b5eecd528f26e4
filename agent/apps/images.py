"""Having an image on this host: one pull for it, however many ask at once."""

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from agent.engine.protocol import Engine, Image, ImageUnavailable, PullProgress


class _PendingPull:
    """A pull under way, and who wants to know how far it is."""

    def __init__(self) -> None:
        self.watchers: list[Callable[[PullProgress], None]] = []
        self.latest: PullProgress | None = None
        self.task: asyncio.Task[None] | None = None

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
        self._pending: dict[str, _PendingPull] = {}

    async def fetch(
        self, reference: str, *, must_pull: bool, progress: Callable[[PullProgress], None]
    ) -> Image:
        """Pull the image; one that came from no registry is used as it is.

        Where the pull fails and not ``must_pull``, an image that is here already will do.

        Raises:
            ImageUnavailable: it cannot be had; the engine's words say why.
            DiskFull: there is no room for it.

        """
        here = await self._engine.image(reference)
        if reference.startswith("sha256:"):  # no server of images knows it by that alone
            return here or await self.present(reference)
        if here is not None and here.local:
            return here
        try:
            await self._pull(reference, progress)
        except ImageUnavailable as error:
            if here is None or must_pull:
                raise ImageUnavailable(f"the image `{reference}` cannot be had: {error}") from error
            self._log.warning("image not pulled, the one that is here is used", image=reference)
            return here
        return await self.present(reference)

    async def present(self, reference: str) -> Image:
        """Give an image that is on this host; ImageUnavailable when it is not."""
        image = await self._engine.image(reference)
        if image is None:
            raise ImageUnavailable(f"the image `{reference}` is not on this host")
        return image

    async def _pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        pending = self._pending.get(reference)
        if pending is None:
            pending = self._pending[reference] = _PendingPull()
            pending.task = asyncio.create_task(self._run(reference, pending))
        pending.add(progress)
        assert pending.task is not None
        await asyncio.shield(pending.task)

    async def _run(self, reference: str, pending: _PendingPull) -> None:
        try:
            await self._engine.pull(reference, pending.report)
        finally:
            del self._pending[reference]

    async def close(self) -> None:
        """Give up the pulls under way."""
        tasks = [each.task for each in self._pending.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
