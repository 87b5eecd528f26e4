"""Keeps a file as the nodes are: once, or for as long as it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from cli.render.errors import CommandFailed, RenderError
from cli.render.nodes import NodeSet
from registry.client.backoff import Backoff
from registry.client.errors import RegistryError
from registry.client.watch import NodeEvent

# Changes that come within this time are written together.
GATHER_SECONDS = 0.5
STALLED_SECONDS = 5.0
LOOK_SECONDS = 0.1
MAX_WARMING_PAUSE = 5.0


class NodeSource(Protocol):
    """The nodes of a registry that pass some filters. Each method raises RegistryError."""

    def events(self) -> AsyncIterator[NodeEvent]:
        """Return `reset`, all nodes, and then their changes, over lost connections."""

    async def hostnames(self) -> set[str]:
        """Return the names of all nodes."""

    async def warming_seconds(self) -> float:
        """Return for how long the registry still does not know all nodes, 0 if it does."""


class NodeFile(Protocol):
    """The file, with the command that follows a change of it."""

    @property
    def is_command_due(self) -> bool:
        """Whether the command has not succeeded since the last change."""

    def write(self, nodes: NodeSet) -> None:
        """Write the file if it differs. Raises RenderError."""

    async def run_command(self) -> None:
        """Run the command. Raises CommandFailed."""


class Follower:
    """Writes the file when all nodes are known, and again when they have changed.

    While the registry cannot be asked, or warms up, the file stays as it is. ``say`` tells the
    operator what hinders.
    """

    def __init__(
        self, source: NodeSource, file: NodeFile, *, backoff: Backoff, say: Callable[[str], None]
    ) -> None:
        self._source = source
        self._file = file
        self._backoff = backoff
        self._say = say
        self._nodes = NodeSet()
        self._changed = asyncio.Event()

    async def once(self) -> None:
        """Write the file once. Raises RegistryError, RenderError, CommandFailed."""
        warming = await self._source.warming_seconds()
        if warming:
            raise RenderError(_warming(warming))
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
        async for event in self._source.events():
            if event.kind == "reset":
                self._nodes = NodeSet()
            else:
                self._nodes.apply(event)
            self._changed.set()

    async def _write_once(self) -> None:
        await self._changed.wait()
        while not await self._is_whole():
            pass
        self._file.write(self._nodes)
        if self._file.is_command_due:
            await self._file.run_command()

    async def _write_each_change(self) -> None:
        pause: float | None = None
        while True:
            if await self._has_changed(within=pause):
                await asyncio.sleep(GATHER_SECONDS)
                self._changed.clear()
                try:
                    whole = await self._is_whole()
                except RegistryError as error:
                    self._say(f"the nodes cannot be read, so the file stays as it is: {error}")
                    whole = False
                    await asyncio.sleep(self._backoff.pause())
                if not whole:
                    self._changed.set()
                    continue
                self._write()
            pause = await self._try_command()

    async def _has_changed(self, *, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self._changed.wait()
        except TimeoutError:
            return False

    def _write(self) -> None:
        try:
            self._file.write(self._nodes)
        except RenderError as error:
            self._say(str(error))

    async def _try_command(self) -> float | None:
        """Run the command if it is due; return the seconds until it is tried again, if it is."""
        if not self._file.is_command_due:
            return None
        try:
            await self._file.run_command()
        except CommandFailed as error:
            pause = self._backoff.pause(at_least=1.0)
            self._say(f"{error}; it is tried again in {pause:.0f} s")
            return pause
        self._backoff.reset()
        return None

    async def _is_whole(self) -> bool:
        """Return whether all nodes are known now; wait for some time until they are."""
        nodes = self._nodes
        if nodes.is_whole():
            return True
        names = await self._source.hostnames()
        # Asked afterwards: a registry that was replaced meanwhile may have given a part of them.
        warming = await self._source.warming_seconds()
        if warming:
            self._say(_warming(warming))
            await asyncio.sleep(min(warming, MAX_WARMING_PAUSE))
            return False
        nodes.expect(names)
        return await self._becomes_whole(nodes)

    async def _becomes_whole(self, nodes: NodeSet) -> bool:
        """Wait until all expected nodes were told of; return False if none is for some time."""
        missing, looks = nodes.missing, 0
        while not nodes.is_whole() and self._is_current(nodes):
            looks = looks + 1 if nodes.missing == missing else 0
            missing = nodes.missing
            if looks * LOOK_SECONDS > STALLED_SECONDS:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return self._is_current(nodes)

    def _is_current(self, nodes: NodeSet) -> bool:
        """Return whether there was no `reset` since."""
        return nodes is self._nodes


def _warming(seconds: float) -> str:
    return (
        "the registry warms up: it does not know all nodes yet, so the file stays as it is;"
        f" {seconds:.0f} s are left"
    )
