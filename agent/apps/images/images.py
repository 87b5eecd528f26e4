"""The images of apps. Apps of the same keys that wait for the same image share one pull."""

import asyncio
from collections.abc import Awaitable, Callable

from agent.apps.admission.disk import DiskGuard
from agent.apps.context import AgentContext
from agent.apps.images.pulled import ImageUse, PulledImages
from agent.apps.images.unneeded import UnneededImages
from agent.engine.errors import ImageNotFound, ImageServerUnavailable, ImageUnavailable
from agent.engine.models import Image, PullProgress
from agent.model import App

# Nothing is known of an image before it is pulled to this host.
UNKNOWN_IMAGE = Image(id="", labels={}, tcp_ports=frozenset(), env={}, local=False)
# Pulls an image by its reference, and returns it.
Pull = Callable[[str], Awaitable[Image]]


class _Pull:
    """A pull that runs, and the callers that wait for it, whose apps have the same ``holders``."""

    def __init__(self, pulled: PulledImages, reference: str, holders: str) -> None:
        self.watchers: list[Callable[[PullProgress], None]] = []
        self.latest = PullProgress(done_bytes=0, total_bytes=0)
        self.task = asyncio.create_task(pulled.pull(reference, self.report, holders=holders))

    def add(self, watcher: Callable[[PullProgress], None]) -> None:
        watcher(self.latest)
        self.watchers.append(watcher)

    def remove(self, watcher: Callable[[PullProgress], None]) -> None:
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def report(self, progress: PullProgress) -> None:
        self.latest = progress
        for watcher in self.watchers:
            watcher(progress)


def _may_be_unknown(here: Image, error: ImageUnavailable) -> bool:
    """Return whether this failure of a pull may mean that no server knows the image."""
    return isinstance(error, ImageNotFound) or (
        isinstance(error, ImageServerUnavailable) and here.may_be_local
    )


class AppImages:
    """The images of apps. ``use`` keeps an image from being removed, until ``unneeded`` may."""

    def __init__(self, context: AgentContext, guard: DiskGuard) -> None:
        self.use = ImageUse()
        self.pulled = PulledImages(context)
        self.unneeded = UnneededImages(context, self.use, guard)
        self._context = context
        self._pulls: dict[tuple[str, str], _Pull] = {}

    async def find(self, app: App, *, must_pull: bool, pull: Pull) -> Image:
        """Return the image of which the container of an app is to be made.

        That is the version which the app names by its id, unless that is None, or with
        ``must_pull`` a newer one.

        Raises:
            ImageUnavailable: it cannot be had; the text holds the engine's words.
            DiskFull: there is no space for it.

        """
        if must_pull or app.image_id is None:
            return await self._fetch(app.image, app, must_pull=must_pull, pull=pull)
        return await self._of_version(app, app.image_id, pull)

    async def _fetch(self, reference: str, app: App, *, must_pull: bool, pull: Pull) -> Image:
        """Pull an image as the policy of its app says, unless it was built on this host.

        If the pull fails, an image that is on this host is used. With ``must_pull``, the image is
        pulled also where the policy is ``missing``; if that fails, the one on this host is used
        only if perhaps no server knows it.
        """
        here = await self._context.engine.image(reference)
        if here is not None and (here.local or (app.pull == "missing" and not must_pull)):
            return here
        # No server has images by their id alone.
        if app.pull == "never" or reference.startswith("sha256:"):
            return here or await self._present(reference)
        try:
            return await pull(reference)
        except ImageUnavailable as error:
            if here is None or (must_pull and not _may_be_unknown(here, error)):
                hint = "; `pull: never` uses the one on this host" if here is not None else ""
                raise type(error)(
                    f"the image `{reference}` cannot be had: {error}{hint}"
                ) from error
            self._context.log.warning(
                "image not pulled, the one on this host is used", image=reference, reason=str(error)
            )
            return here

    async def _of_version(self, app: App, image_id: str, pull: Pull) -> Image:
        """Return the image that an app runs or ran, wherever its reference leads by now.

        If it is not on this host any more, it is pulled by its digest, or by its reference if that
        leads to no other version.
        """
        here = await self._context.engine.image(image_id)
        if here is not None:
            return here
        gone = f"the image that the app ran ({image_id}) is not on this host any more"
        try:
            # The digest identifies it, so its id may differ, as in another kind of image store.
            reference = app.image_digest or app.image
            fetched = await self._fetch(reference, app, must_pull=False, pull=pull)
        except ImageUnavailable as error:
            if app.image_digest is not None:
                raise type(error)(
                    f"{gone}: {error}; put it back with `docker load`, or rebuild the app to take"
                    " another version"
                ) from error
            # That server may never have had the image, so its failure is not reported as a
            # temporary one.
            raise ImageUnavailable(
                f"{gone}, and has no digest at a server; put it back with `docker load`, or rebuild"
                f" the app to take another version ({error})"
            ) from error
        if app.image_digest is None and fetched.id not in (image_id, UNKNOWN_IMAGE.id):
            raise ImageUnavailable(
                f"{gone}, and `{app.image}` is another one now; rebuild the app to take that, or"
                " put the image back with `docker load`"
            )
        return fetched

    async def _present(self, reference: str) -> Image:
        """Return an image that is on this host; ImageUnavailable when it is not."""
        image = await self._context.engine.image(reference)
        if image is None:
            raise ImageUnavailable(f"the image `{reference}` is not on this host")
        return image

    async def pull(
        self, reference: str, *, app: App, progress: Callable[[PullProgress], None]
    ) -> Image:
        """Pull an image for an app.

        ``progress`` is called when the pull begins, and while it lasts.

        Raises:
            ImageUnavailable, DiskFull: it cannot be pulled.
            Exception: what ``progress`` raises.

        """
        # The app of another key must not wait for the turn of this one.
        key = (reference, self._context.repository.holders(app.name))
        pull = self._pulls.get(key)
        if pull is None:
            pull = self._pulls[key] = _Pull(self.pulled, *key)
        try:
            pull.add(progress)
            await asyncio.shield(pull.task)
        finally:
            pull.remove(progress)
            # A new caller must not join a pull that has ended, or that nobody waits for.
            if self._pulls.get(key) is pull and (pull.task.done() or not pull.watchers):
                del self._pulls[key]
                pull.task.cancel()
        return await self._present(reference)

    async def close(self) -> None:
        """Cancel the pulls that run."""
        tasks = [pull.task for pull in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
