"""The images that the agent pulled, and those that an operation needs at present."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from agent.apps.context import AgentContext
from agent.engine.errors import (
    AnswerTooLong,
    EngineError,
    EngineRejected,
    ImageTooLarge,
    PullTimeout,
)
from agent.engine.logins import full_reference
from agent.engine.models import Image, PullProgress
from agent.state.database import StoreError
from agent.state.history import Pull
from runtime.turns import Turns

# How often it is written down that the agent still waits for a pull.
RENEWAL_SECONDS = 5.0
# The engine may finish a pull this long after the agent has ceased to wait for it.
GRACE_SECONDS = 2.0
# The engine does not finish an abandoned pull after this time.
LATE_SECONDS = 60.0
# How many pulls run at the same time; more have to wait.
MOST_PULLS = 32
# Of the apps of one key; by default the engine downloads three layers at a time.
MOST_PULLS_OF_KEY = 2


class PulledImages:
    """Pulls images, and notes those that were not on the host before: the agent may remove them.

    Each pull waits for its turn, and is written down before it is begun. After an interrupted one,
    because it was cancelled or took too long, or the agent was killed, ``finish_interrupted``
    finds out what it brought. An image that is too large to be read is removed at once: many of
    them would make the engine's list of all images too long.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._turns = Turns(MOST_PULLS)
        self._running: dict[str, Pull] = {}
        # When this process ceased to wait for pulls whose outcome it does not know, by reference.
        self._given_up_at: dict[str, float] = {}

    async def pull(
        self, reference: str, progress: Callable[[PullProgress], None], *, holders: str = ""
    ) -> None:
        """Pull an image once it is its turn; errors as of the engine, and StoreError.

        ``holders`` are the keys for some apps that its app belongs to.
        """
        async with self._turns.turn(holders, most=MOST_PULLS_OF_KEY if holders else MOST_PULLS):
            await self._begin(reference, progress)

    async def _begin(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        await self._finish_former(reference)
        now = self._context.clock()
        images = await self._images_here(reference)
        pull = Pull(reference=reference, began_at=now, alive_at=now, images=images)
        self._running[reference] = pull
        self._given_up_at.pop(reference, None)
        renewal = asyncio.create_task(self._renew(pull), name=f"pull of {reference}")
        try:
            await self._context.repository.pulls.begin(pull)
            await self._pull(pull, progress)
        finally:
            renewal.cancel()
            if self._running.get(reference) is pull:
                del self._running[reference]

    async def _images_here(self, reference: str) -> Mapping[str, frozenset[str]] | None:
        """Return the tags of all images by their ids; None if they are too many to be listed."""
        try:
            return {image.id: image.tags for image in await self._context.engine.images()}
        except AnswerTooLong as error:
            self._context.log.warning(
                "image is pulled, and not removed later", image=reference, reason=str(error)
            )
            return None

    async def _pull(self, pull: Pull, progress: Callable[[PullProgress], None]) -> None:
        try:
            await self._context.engine.pull(pull.reference, progress)
        except (PullTimeout, asyncio.CancelledError):
            self._given_up_at[pull.reference] = self._context.clock()
            raise
        except EngineRejected:
            await self._context.repository.pulls.end(pull, None, frozenset())
            raise
        await self._end(pull, await self._image(pull))

    async def _image(self, pull: Pull) -> Image | None:
        """Return the image that a reference leads to after its pull, if it can be read."""
        try:
            return await self._context.engine.image(pull.reference)
        except ImageTooLarge:
            # Before the pull it did not lead there: the pull would not have begun.
            try:
                await self._context.engine.remove_image(pull.reference)
            except EngineRejected as error:
                self._context.log.warning(
                    "image too large, and not removed", image=pull.reference, reason=str(error)
                )
            await self._context.repository.pulls.end(pull, None, frozenset())
            raise

    async def _renew(self, pull: Pull) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            with suppress(StoreError, EngineError):  # what was written before still holds
                await self._context.repository.pulls.renew(pull, self._context.clock())

    async def _end(self, pull: Pull, image: Image | None) -> None:
        """Write the end of a pull; note the image that it brought if it was not here before."""
        ours = self._context.repository.pulls.images
        if (
            image is None
            or pull.images is None
            or (image.id in pull.images and image.id not in ours)
        ):
            await self._context.repository.pulls.end(pull, None, frozenset())
            return
        new = image.tags - pull.images.get(image.id, frozenset())
        # Somebody else may have tagged the image while it was pulled.
        full = full_reference(pull.reference)
        tags = frozenset(each for each in new if full_reference(each) == full)
        await self._context.repository.pulls.end(pull, image.id, tags)

    async def finish_interrupted(self) -> None:
        """Record the images of pulls that were interrupted after the engine had done them.

        Raises:
            EngineError, StoreError: it is to be called again later.

        """
        for reference in list(self._context.repository.pulls.begun):
            await self._finish_former(reference)

    async def _finish_former(self, reference: str) -> None:
        pull = self._context.repository.pulls.begun.get(reference)
        if pull is None or reference in self._running:
            return
        try:
            image = await self._image(pull)
        except ImageTooLarge:
            return
        if image is not None and await self._was_done(pull):
            await self._end(pull, image)
        elif self._context.clock() - pull.alive_at > LATE_SECONDS:
            await self._context.repository.pulls.end(pull, None, frozenset())
        else:
            return
        self._given_up_at.pop(reference, None)

    async def _was_done(self, pull: Pull) -> bool:
        """Return whether the engine completed this pull and the image is unchanged since.

        A pull of somebody else has the same event, so it counts only if it ended while the agent
        waited for its own, or at once afterwards, and is the only event of the image.
        """
        events = await self._context.engine.image_events(pull.reference, since=pull.began_at)
        if [event.action for event in events] != ["pull"]:
            return False
        waited_until = self._given_up_at.get(pull.reference, pull.alive_at + RENEWAL_SECONDS)
        return events[0].time <= waited_until + GRACE_SECONDS


class ImageUse:
    """Keeps images from being removed between their choice and the creation of their containers."""

    def __init__(self) -> None:
        self._needed = Counter[str]()
        self._removal = asyncio.Lock()

    @asynccontextmanager
    async def needed(self, name: str) -> AsyncIterator[None]:
        """Keep an image, by its id or a reference; wait for a removal that runs."""
        name = full_reference(name)
        async with self._removal:
            self._needed[name] += 1
        try:
            yield
        finally:
            self._needed[name] -= 1
            if not self._needed[name]:
                del self._needed[name]

    def is_needed(self, image: Image) -> bool:
        """Return whether an image is kept, by its id or by any reference that leads to it."""
        names = (image.id, *image.tags, *image.digests)
        return any(full_reference(each) in self._needed for each in names)

    @asynccontextmanager
    async def removal(self) -> AsyncIterator[None]:
        """Remove an image that is not needed; no other gets needed meanwhile."""
        async with self._removal:
            yield
