"""A client of GET /nodes?watch=true, which keeps what the events say."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import aiohttp
import msgspec

from tests.support.registry.in_process import OPS


class Event(NamedTuple):
    """One event; `data` is decoded."""

    id: str
    kind: str
    data: Any


class Watcher:
    """Follows a registry's nodes over one connection after the other.

    `nodes` are the nodes by hostname, without `last_update`, and `stale` the hostnames of those
    that are stale, as the events so far say.
    """

    def __init__(self, address: tuple[str, int], query: str = "") -> None:
        self._url = f"http://{address[0]}:{address[1]}/nodes?watch=true{query}"
        self.last_id: str | None = None
        self.events: list[Event] = []
        self.comments = 0
        self.nodes: dict[str, Any] = {}
        self.stale: set[str] = set()
        self._changed = asyncio.Event()

    async def follow(self, *, events: int | None = None) -> None:
        """Follow until the connection ends, or so many events have come."""
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
                async for event in self._parse(response.content):
                    self._take(event)
                    left = None if left is None else left - 1
                    if left == 0:
                        return

    async def until(self, condition: Callable[["Watcher"], object]) -> None:
        """Wait until the events say what is waited for."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    async def _parse(self, content: aiohttp.StreamReader) -> AsyncIterator[Event]:
        fields: dict[str, str] = {}
        async for line in content:
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

    def _take(self, event: Event) -> None:
        self.events.append(event)
        match event.kind:
            case "reset":
                self.nodes.clear()
                self.stale.clear()
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
