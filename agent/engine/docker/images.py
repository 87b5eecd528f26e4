"""Finds and pulls images, with the configured logins and within time limits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from urllib.parse import quote

from agent.engine.api import decoding
from agent.engine.api.client import EngineClient
from agent.engine.api.streams import PullReport, lines
from agent.engine.api.translation import LATE, from_pull
from agent.engine.errors import (
    AnswerTooLong,
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    ImageServerUnavailable,
    ImageTooLarge,
    ImageUnavailable,
    ObjectNotFound,
    PullTimeout,
)
from agent.engine.logins import ImageRegistryLogin, login_header, pull_query
from agent.engine.models import Image, ListedImage, PullProgress

# The configuration of an image that fits has 64 KiB, and older engines tell it twice.
LONGEST_IMAGE = 1 << 20
LIST_TRIES = 10
LIST_PAUSE_SECONDS = 0.1


class EngineImages:
    """Finds and pulls images. A pull has ``pull_seconds``, and ``idle_seconds`` without progress.

    ``logins`` are those at registries of images; other ones may be set, and are used from the next
    pull on.
    """

    def __init__(
        self,
        client: EngineClient,
        logins: Sequence[ImageRegistryLogin],
        pull_seconds: float,
        idle_seconds: float,
    ) -> None:
        self._client = client
        self.logins = tuple(logins)
        self._pull_seconds = pull_seconds
        self._idle_seconds = idle_seconds

    async def get(self, reference: str) -> Image | None:
        """Return an image of this host, None if it is not there; ImageTooLarge."""
        path = f"/images/{quote(reference, safe='/:@')}/json"
        read = partial(decoding.image, reference=reference)
        try:
            return await self._client.get(path, read, longest=LONGEST_IMAGE)
        except ImageUnavailable:
            return None
        except AnswerTooLong as error:
            raise ImageTooLarge(
                f"the configuration of the image `{reference}` (LABEL, CMD, ENTRYPOINT, ENV and so"
                f" on) takes more than {LONGEST_IMAGE} bytes; build it with less, and remove what"
                " this host has of it with `docker rmi`"
            ) from error

    async def _listed(self) -> list[ListedImage]:
        try:
            return await self._client.get("/images/json", decoding.images)
        except AnswerTooLong as error:
            raise AnswerTooLong(
                "the labels of all images on this host make the engine's list too long; remove"
                " images that nobody needs with `docker rmi`"
            ) from error

    async def list(self) -> list[ListedImage]:
        """List the images of this host; AnswerTooLong.

        With the containerd image store, the engine answers 404 if an image is removed meanwhile.
        """
        for _ in range(LIST_TRIES - 1):
            with suppress(ObjectNotFound, ImageUnavailable):
                return await self._listed()
            await asyncio.sleep(LIST_PAUSE_SECONDS)
        return await self._listed()

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Pull an image; ``progress`` is called with the progress."""
        headers = await asyncio.to_thread(login_header, reference, self.logins)
        late = self._late(f"made no progress for {self._idle_seconds:g} s")
        try:
            async with self._translated(late):
                async with asyncio.timeout(self._pull_seconds):
                    await self._pull(reference, headers, PullReport(progress))
        except TimeoutError as error:
            raise self._late(f"took longer than {self._pull_seconds:g} s") from error

    async def find_manifest(self, reference: str) -> None:
        """Ask the server of an image for its manifest."""
        headers = await asyncio.to_thread(login_header, reference, self.logins)
        path = f"/distribution/{quote(reference, safe='/:@')}/json"
        seconds = self._client.timeout_seconds
        late = ImageServerUnavailable(f"its server did not answer in {seconds:g} s")
        async with self._translated(late):
            chunks = self._client.stream("GET", path, headers=headers, idle_seconds=seconds)
            async with aclosing(chunks):
                async for _ in chunks:
                    pass

    @asynccontextmanager
    async def _translated(self, late: ImageServerUnavailable) -> AsyncIterator[None]:
        """Raise our errors for what the engine answers about the server of an image."""
        try:
            yield
        except EngineTimeout as error:
            # If the engine hangs, and not that server, this raises EngineTimeout too.
            await self._client.get("/info", decoding.info)
            raise late from error
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise from_pull(str(error)) from error

    async def _pull(self, reference: str, headers: Mapping[str, str], pull: PullReport) -> None:
        chunks = self._client.stream(
            "POST",
            "/images/create",
            query=pull_query(reference),
            headers=headers,
            idle_seconds=self._pull_seconds,
        )
        loop = asyncio.get_running_loop()
        try:
            async with (
                asyncio.timeout(self._idle_seconds) as idle,
                aclosing(chunks),
                aclosing(lines(chunks)) as report,
            ):
                async for line in report:
                    pull.take(line)
                    # It is not to blame for the pulls of others that the engine does first.
                    until = None if pull.is_queued else loop.time() + self._idle_seconds
                    idle.reschedule(until)
        except TimeoutError as error:
            raise EngineTimeout(LATE) from error

    def _late(self, how: str) -> PullTimeout:
        return PullTimeout(
            f"its pull {how}; a pull has {self._pull_seconds:g} s in all (`apps.pull_seconds`), and"
            f" {self._idle_seconds:g} s without progress"
        )
