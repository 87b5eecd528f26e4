"""Pulls images, with the configured logins and within time limits."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from urllib.parse import quote

import msgspec

from agent.engine import decode
from agent.engine.errors import (
    EngineError,
    EngineTimeout,
    EngineUnavailable,
    ImageServerUnavailable,
    PullTimeout,
)
from agent.engine.http import EngineClient
from agent.engine.logins import ImageRegistryLogin, login_header, pull_query
from agent.engine.models import PullProgress
from agent.engine.responses import PullLine
from agent.engine.streams import lines
from agent.engine.translation import LATE, from_pull, well_formed

FOUND, QUEUED = "Pulling fs layer", "Waiting"
DONE = ("Download complete", "Pull complete", "Already exists", "Verifying Checksum", "Extracting")
PULL_LINE = msgspec.json.Decoder(PullLine)


class PullReport:
    """Sums the progress of the layers of an image."""

    def __init__(self, progress: Callable[[PullProgress], None]) -> None:
        self._progress = progress
        self._layers: dict[str, tuple[int, int]] = {}
        self._statuses: dict[str, str] = {}

    @property
    def is_queued(self) -> bool:
        """Whether the engine downloads nothing of it before layers of other pulls."""
        unfinished = {each for each in self._statuses.values() if each not in DONE}
        return unfinished == {QUEUED}

    def take(self, line: bytes) -> None:
        """Take one line of the report.

        Raises:
            ImageUnavailable, DiskFull: the line reports a failure, though the status was 200.
            EngineRefused: the line cannot be read.

        """
        with well_formed():
            entry = PULL_LINE.decode(line)
        text = (entry.error_detail.message if entry.error_detail else "") or entry.error
        if text:
            raise from_pull(text)
        layer, detail = entry.id, entry.progress_detail
        if entry.status == FOUND or layer in self._statuses:
            self._statuses[layer] = entry.status
        if layer and entry.status == "Downloading" and detail and detail.total:
            self._layers[layer] = (detail.current, detail.total)
        elif layer in self._layers and entry.status in DONE:
            self._layers[layer] = (self._layers[layer][1], self._layers[layer][1])
        else:
            return
        done, total = (sum(column) for column in zip(*self._layers.values(), strict=True))
        self._progress(PullProgress(done_bytes=done, total_bytes=total))


class Pulls:
    """Pulls images. A pull has ``pull_seconds``, and ``idle_seconds`` without progress.

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
            await self._client.get("/info", decode.info)
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
