"""Clients of GET /nodes?watch=true: one that keeps what the events say, and many that count."""

import asyncio
import selectors
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec

from tests.support.registry.in_process import OPS

TIMEOUT_SECONDS = 30.0
READ_BYTES = 256 * 1024
EVENT = b"\nevent: node\n"


class Event(NamedTuple):
    """One event; `data` is decoded."""

    id: str
    kind: str
    data: Any


class Watcher:
    """Follows a registry's nodes over one connection after the other.

    `nodes` are the nodes by hostname, without `last_update`, and `stale` the hostnames of those
    that are stale, as the events so far say. `is_listed` is whether these are all nodes.
    `cut_events` counts connections that it cut within an event.
    """

    def __init__(self, address: tuple[str, int], query: str = "") -> None:
        self._query = query
        self.go_to(address)
        self.last_id: str | None = None
        self.events: list[Event] = []
        self.comments = 0
        self.cut_events = 0
        self.nodes: dict[str, Any] = {}
        self.stale: set[str] = set()
        self.is_listed = False
        self._changed = asyncio.Event()

    def go_to(self, address: tuple[str, int]) -> None:
        """Follow another registry from the next connection on."""
        self._url = f"http://{address[0]}:{address[1]}/nodes?watch=true{self._query}"

    async def follow(
        self,
        *,
        events: int | None = None,
        lines: int | None = None,
        size: int | None = None,
    ) -> None:
        """Follow until the connection ends, or so many events, lines or bytes have come."""
        headers = {"Authorization": f"Bearer {OPS}"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        left = events
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(self._url, headers=headers) as response,
        ):
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"] == "text/event-stream"
            with suppress(aiohttp.ClientPayloadError):
                async for event in self._parse(response.content, lines, size):
                    self._take(event)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    async def until(self, condition: Callable[["Watcher"], object]) -> None:
        """Wait until the events say what is waited for."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    async def _parse(
        self, content: aiohttp.StreamReader, lines: int | None, size: int | None
    ) -> AsyncIterator[Event]:
        fields: dict[str, str] = {}
        count = received = 0
        async for line in content:
            if count == lines:
                return
            count += 1
            received += len(line)
            if size is not None and received > size:
                self.cut_events += 1
                return
            text = line.decode().rstrip("\n")
            if not text:
                self.last_id = fields.get("id", self.last_id)
                if "data" in fields:
                    data = msgspec.json.decode(fields["data"])
                    yield Event(fields["id"], fields["event"], data)
                fields = {}
            elif text.startswith(":"):
                self.comments += 1
                self._changed.set()
            else:
                name, _, value = text.partition(": ")
                fields[name] = value
            if received == size:
                self.cut_events += bool(fields)
                return

    def _take(self, event: Event) -> None:
        self.events.append(event)
        match event.kind:
            case "reset":
                self.nodes.clear()
                self.stale.clear()
                self.is_listed = False
            case "listed":
                self.is_listed = True
            case "node":
                node = without_time(event.data)
                self.nodes[node["hostname"]] = node
            case "gone":
                self.nodes.pop(event.data["hostname"], None)
                self.stale.discard(event.data["hostname"])
            case "stale":
                self.stale.add(event.data["hostname"])
            case "fresh":
                self.stale.discard(event.data["hostname"])
            case kind:
                raise AssertionError(f"no event is called {kind}")
        self._changed.set()


def without_time(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node without `last_update`, of which a watch says nothing."""
    return {name: value for name, value in node.items() if name != "last_update"}


class CountingWatcher:
    """A connection that counts changes of nodes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address)
        self._end = b""
        self.events = 0

    def begin(self, last_id: str, query: str) -> None:
        """Begin to watch."""
        self.connection.sendall(
            f"GET /nodes?watch=true{query} HTTP/1.1\r\nHost: registry\r\n"
            f"Authorization: Bearer {OPS}\r\nLast-Event-ID: {last_id}\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.connection.recv(1)
        assert head.startswith(b"HTTP/1.1 200 "), head

    def receive(self) -> None:
        """Count the events that have come; an event may come in two pieces."""
        received = self.connection.recv(READ_BYTES)
        assert received, "the registry ended a watch"
        data = self._end + received
        self.events += data.count(EVENT)
        self._end = data[-len(EVENT) + 1 :]


class ManyWatchers:
    """So many connections that watch from the same event on; used as a context."""

    def __init__(
        self, address: tuple[str, int], last_id: str, count: int, *, query: str = ""
    ) -> None:
        self._watchers = list[CountingWatcher]()
        try:
            for _ in range(count):
                self._watchers.append(CountingWatcher(address))
                self._watchers[-1].begin(last_id, query)
        except BaseException:
            self._close()
            raise

    def receive(self, events: int) -> list[int]:
        """Read until each got that many events, or more; return how many each got."""
        with selectors.DefaultSelector() as selector:
            for watcher in self._watchers:
                selector.register(watcher.connection, selectors.EVENT_READ, watcher)
            while selector.get_map():
                ready = selector.select(TIMEOUT_SECONDS)
                assert ready, f"no event comes: {[watcher.events for watcher in self._watchers]}"
                for key, _ in ready:
                    key.data.receive()
                    if key.data.events >= events:
                        selector.unregister(key.fileobj)
        return [watcher.events for watcher in self._watchers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for watcher in self._watchers:
            watcher.connection.close()
