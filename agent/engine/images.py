"""Pulls images, with the configured logins and within time limits."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple
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
            EngineRejected: the line cannot be read.

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


class PullRules(NamedTuple):
    """The logins at registries of images, and the limits in seconds of a pull.

    One has so many ``seconds`` in all, and ``idle_seconds`` without progress.
    """

    logins: tuple[ImageRegistryLogin, ...]
    seconds: float
    idle_seconds: float

    def late(self, how: str) -> PullTimeout:
        """Return the error of a pull that took too long."""
        return PullTimeout(
            f"its pull {how}; a pull has {self.seconds:g} s in all (`apps.pull_seconds`), and"
            f" {self.idle_seconds:g} s without progress"
        )


async def pull_image(
    client: EngineClient,
    rules: PullRules,
    reference: str,
    progress: Callable[[PullProgress], None],
) -> None:
    """Pull an image; ``progress`` is called with the progress."""
    headers = await asyncio.to_thread(login_header, reference, rules.logins)
    late = rules.late(f"made no progress for {rules.idle_seconds:g} s")
    chunks = client.stream(
        "POST",
        "/images/create",
        query=pull_query(reference),
        headers=headers,
        idle_seconds=rules.seconds,
    )
    try:
        async with _translated(client, late), asyncio.timeout(rules.seconds):
            await _follow(chunks, PullReport(progress), rules.idle_seconds)
    except TimeoutError as error:
        raise rules.late(f"took longer than {rules.seconds:g} s") from error


async def _follow(chunks: AsyncGenerator[bytes], pull: PullReport, idle_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with (
            asyncio.timeout(idle_seconds) as idle,
            aclosing(chunks),
            aclosing(lines(chunks)) as report,
        ):
            async for line in report:
                pull.take(line)
                # It is not to blame for the pulls of others that the engine does first.
                idle.reschedule(None if pull.is_queued else loop.time() + idle_seconds)
    except TimeoutError as error:
        raise EngineTimeout(LATE) from error


async def find_manifest(client: EngineClient, rules: PullRules, reference: str) -> None:
    """Ask the server of an image for its manifest."""
    headers = await asyncio.to_thread(login_header, reference, rules.logins)
    path = f"/distribution/{quote(reference, safe='/:@')}/json"
    seconds = client.timeout_seconds
    late = ImageServerUnavailable(f"its server did not answer in {seconds:g} s")
    chunks = client.stream("GET", path, headers=headers, idle_seconds=seconds)
    async with _translated(client, late), aclosing(chunks):
        async for _ in chunks:
            pass


@asynccontextmanager
async def _translated(client: EngineClient, late: ImageServerUnavailable) -> AsyncIterator[None]:
    """Raise our errors for what the engine answers about the server of an image."""
    try:
        yield
    except EngineTimeout as error:
        # If the engine hangs, and not that server, this raises EngineTimeout too.
        await client.get("/info", decode.info)
        raise late from error
    except EngineUnavailable:
        raise
    except EngineError as error:
        raise from_pull(str(error)) from error
