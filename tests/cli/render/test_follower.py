"""When a file is written, from what a registry shows; what hinders it; the command that follows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from cli.render.file import CommandFailed, Follower, NodeSet, RenderedFile, RenderError
from clients.errors import RegistryError, Unreachable, WrongKey
from clients.models import AddressedNode, NodeEvent
from runtime.pauses import Backoff
from tests.support.machine.clocks import in_virtual_time

RESET = NodeEvent(kind="reset")
LISTED = NodeEvent(kind="listed")


def node(hostname: str, *labels: str) -> NodeEvent:
    """Return the event of a node."""
    found = AddressedNode(hostname=hostname, labels=list(labels), kv={}, last_update=1)
    return NodeEvent(kind="node", hostname=hostname, node=found)


class Source:
    """A registry whose answers the test sets."""

    def __init__(self) -> None:
        self._waiting = asyncio.Queue[NodeEvent | RegistryError]()

    def tell(self, *events: NodeEvent | RegistryError) -> None:
        """Send events, or end the watch by an error."""
        for event in events:
            self._waiting.put_nowait(event)

    async def events(self) -> AsyncIterator[NodeEvent]:
        """Yield the events."""
        while True:
            event = await self._waiting.get()
            if isinstance(event, RegistryError):
                raise event
            yield event


class File:
    """A file, and the runs of its command, of which so many fail."""

    def __init__(self, path: Path) -> None:
        self.written: list[list[str]] = []
        self.failures = 0
        self.runs: list[float] = []
        self.rejection = ""
        self._path = path
        self.rendered = RenderedFile(
            self._path,
            render=self._render,
            command=self._run,
            min_nodes=0,
            say=lambda _text: self.written.append(self._path.read_text().split()),
        )

    def _render(self, nodes: NodeSet) -> str:
        if self.rejection:
            raise RenderError(self.rejection)
        return "\n".join(each.hostname for each in nodes)

    async def _run(self) -> None:
        self.runs.append(asyncio.get_running_loop().time())
        if self.failures:
            self.failures -= 1
            raise CommandFailed("false ended with status 1")


class Harness:
    """A follower between the two."""

    def __init__(self, path: Path) -> None:
        self.source, self.file = Source(), File(path)
        self.said: list[str] = []
        self.follower = Follower(
            self.source.events(),
            self.file.rendered,
            backoff=Backoff(max_seconds=60, random=Random(1)),
            say=self.said.append,
        )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow while the context is open."""
        task = asyncio.create_task(self.follower.forever())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@in_virtual_time
async def test_the_file_is_written_when_all_nodes_are_known_and_at_each_change(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path / "hosts")
    async with harness.following():
        harness.source.tell(RESET, node("h1"))
        await asyncio.sleep(5)
        assert harness.file.written == []
        harness.source.tell(node("h2"), LISTED)
        await asyncio.sleep(2)
        assert harness.file.written == [["h1", "h2"]]
        harness.source.tell(node("h3"), NodeEvent(kind="gone", hostname="h1"))
        await asyncio.sleep(1)

    assert harness.file.written == [["h1", "h2"], ["h2", "h3"]]
    assert len(harness.file.runs) == 2
    assert harness.said == []


@in_virtual_time
async def test_while_the_registry_warms_up_the_file_stays_as_it_is(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "hosts")
    async with harness.following():
        harness.source.tell(RESET, NodeEvent(kind="listed", warming_seconds=60))
        await asyncio.sleep(30)
        harness.source.tell(node("h1"))
        await asyncio.sleep(29)
        assert harness.file.written == []
        assert "warms up" in harness.said[0]
        await asyncio.sleep(10)

    assert harness.file.written == [["h1"]]


@in_virtual_time
async def test_nodes_that_are_listed_anew_are_written_once_all_of_them_are_there(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path / "hosts")
    async with harness.following():
        harness.source.tell(RESET, node("h1"), node("h2"), LISTED)
        await asyncio.sleep(5)
        harness.source.tell(RESET, node("h2"))  # the connection was lost for long
        await asyncio.sleep(100)
        assert harness.file.written == [["h1", "h2"]]
        harness.source.tell(node("h3"), LISTED)
        await asyncio.sleep(5)

    assert harness.file.written == [["h1", "h2"], ["h2", "h3"]]


@in_virtual_time
async def test_a_list_that_begins_anew_before_its_end_is_waited_for_whole(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "hosts")
    async with harness.following():
        harness.source.tell(RESET, node("h0"), node("h1"))
        await asyncio.sleep(5)
        harness.source.tell(RESET, node("h1"))
        await asyncio.sleep(5)
        assert harness.file.written == []
        harness.source.tell(node("h2"), LISTED)
        await asyncio.sleep(5)

    assert harness.file.written == [["h1", "h2"]]


@in_virtual_time
async def test_a_command_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "hosts")
    harness.file.failures = 3
    async with harness.following():
        harness.source.tell(RESET, node("h1"), node("h2"), LISTED)
        await asyncio.sleep(300)
        assert harness.file.written == [["h1", "h2"]]
        assert len(harness.file.runs) == 4
        assert len(harness.said) == 3
        harness.source.tell(node("h3"))
        await asyncio.sleep(1)

    assert len(harness.file.runs) == 5
    assert harness.said[0].startswith("false ended with status 1; it is tried again in ")


@in_virtual_time
async def test_a_file_that_cannot_be_written_is_reported_and_tried_again_without_a_change(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path / "hosts")
    harness.file.rejection = "no space"
    async with harness.following():
        harness.source.tell(RESET, node("h1"), node("h2"), LISTED)
        await asyncio.sleep(300)
        assert harness.file.runs == []
        tries = len(harness.said)
        harness.file.rejection = ""
        await asyncio.sleep(61)

    assert set(harness.said) == {"no space"}
    assert 3 < tries < 20
    assert harness.file.written == [["h1", "h2"]]
    assert len(harness.file.runs) == 1


@in_virtual_time
async def test_once_shows_what_hinders_it_and_ends(tmp_path: Path) -> None:
    warming, away, lost, failing = (Harness(tmp_path / f"hosts-{number}") for number in range(4))
    warming.source.tell(RESET, NodeEvent(kind="listed", warming_seconds=30))
    away.source.tell(Unreachable("no connection"))
    lost.source.tell(RESET, WrongKey("401: no"))
    failing.source.tell(RESET, node("h1"), node("h2"), LISTED)
    failing.file.failures = 1

    with pytest.raises(RenderError, match="warms up"):
        await warming.follower.once()
    with pytest.raises(Unreachable):
        await away.follower.once()
    with pytest.raises(WrongKey):
        await lost.follower.once()
    with pytest.raises(CommandFailed):
        await failing.follower.once()

    assert [each.file.written for each in (warming, away, lost)] == [[], [], []]
    assert failing.file.rendered.is_command_due


@in_virtual_time
async def test_a_key_that_is_rejected_ends_the_watch(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "hosts")
    harness.source.tell(WrongKey("401: no"))

    with pytest.raises(WrongKey):
        await harness.follower.forever()
