"""Keeps a file as the nodes are: once, or for as long as it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from cli.render.file import CommandFailed, NodeSet, RenderedFile, RenderError
from clients.models import NodeEvent
from runtime.pauses import Backoff

# Changes that come within this time are written together.
GATHER_SECONDS = 0.5
MAX_WARMING_PAUSE = 5.0


class Follower:
    """Writes the file when all nodes are known, and again when they have changed.

    ``events`` are those of a watch, over lost connections. Nodes that are listed anew count once
    all of them are there. While the registry is away or warms up, the file stays as it is. ``say``
    tells the operator what hinders.
    """

    def __init__(
        self,
        events: AsyncIterator[NodeEvent],
        file: RenderedFile,
        *,
        backoff: Backoff,
        say: Callable[[str], None],
    ) -> None:
        self._events = events
        self._file = file
        self._backoff = backoff
        self._say = say
        self._nodes = NodeSet()
        self._warm_at = 0.0
        self._changed = asyncio.Event()

    async def once(self) -> None:
        """Write the file once. Raises RegistryError, RenderError, CommandFailed."""
        await self._beside_the_watch(self._write_once)

    async def forever(self) -> None:
        """Write the file whenever nodes have changed. Raises RegistryError if that is final."""
        await self._beside_the_watch(self._write_each_change)

    async def _beside_the_watch(self, write: Callable[[], Awaitable[None]]) -> None:
        watching = asyncio.create_task(self._watch())
        writing = asyncio.ensure_future(write())
        try:
            await asyncio.wait((watching, writing), return_when=asyncio.FIRST_COMPLETED)
            await (writing if writing.done() else watching)
        finally:
            for task in (watching, writing):
                task.cancel()
            await asyncio.gather(watching, writing, return_exceptions=True)

    async def _watch(self) -> None:
        coming = NodeSet()
        async for event in self._events:
            if event.kind == "reset":
                coming = NodeSet()
            elif event.kind == "listed":
                self._nodes = coming
                self._warm_at = asyncio.get_running_loop().time() + event.warming_seconds
            else:
                coming.apply(event)
            if coming is self._nodes:
                self._changed.set()

    async def _write_once(self) -> None:
        await self._changed.wait()
        warming = self._warming_seconds()
        if warming > 0:
            raise RenderError(_warming(warming))
        self._file.write(self._nodes)
        if self._file.is_command_due:
            await self._file.run_command()

    async def _write_each_change(self) -> None:
        pause: float | None = None
        while True:
            if await self._has_changed(within=pause):
                await asyncio.sleep(GATHER_SECONDS)
                while (warming := self._warming_seconds()) > 0:
                    self._say(_warming(warming))
                    await asyncio.sleep(min(warming, MAX_WARMING_PAUSE))
                self._changed.clear()
            pause = await self._try()

    def _warming_seconds(self) -> float:
        return self._warm_at - asyncio.get_running_loop().time()

    async def _has_changed(self, *, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self._changed.wait()
        except TimeoutError:
            return False

    async def _try(self) -> float | None:
        """Write the file, and run the command if it is due.

        Returns the seconds until both are tried again, None if both are done.
        """
        is_done, pause = True, self._backoff.pause(at_least=1.0)
        try:
            self._file.write(self._nodes)
        except RenderError as error:
            is_done = False
            self._say(str(error))
        try:
            if self._file.is_command_due:
                await self._file.run_command()
        except CommandFailed as error:
            is_done = False
            self._say(f"{error}; it is tried again in {pause:.0f} s")
        if not is_done:
            return pause
        self._backoff.reset()
        return None


def _warming(seconds: float) -> str:
    return (
        "the registry warms up: it does not know all nodes yet, so the file stays as it is;"
        f" {seconds:.0f} s are left"
    )
