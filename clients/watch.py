"""Follows the nodes of a registry: each change once, over lost connections, too."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from random import SystemRandom

import aiohttp
import msgspec

from clients.errors import NotARegistry, RegistryError
from clients.http import error_for_exception
from clients.models import AddressedNode, NodeEvent
from clients.registry import RegistryClient
from runtime.pauses import Backoff

# The registry sends a comment every 15 seconds.
SILENCE_SECONDS = 45
MAX_PAUSE_SECONDS = 30
MAX_EVENT_BYTES = 4 * 1024 * 1024


class _Host(msgspec.Struct):
    hostname: str


class _Listed(msgspec.Struct):
    warming_seconds: int = 0


class NodeWatch:
    """Follows the nodes that pass all filters, and resumes where the connection was lost.

    ``parameters`` are those of the query: filters, and ADDRESS for nodes with their addresses.
    ``lost`` is called with the reason at each loss, and before each pause. An error that will not
    pass by itself, such as a wrong key, ends the watch.
    """

    def __init__(
        self,
        client: RegistryClient,
        parameters: Iterable[tuple[str, str]] = (),
        *,
        lost: Callable[[RegistryError], None],
    ) -> None:
        self._client = client
        self._query = [("watch", "true"), *parameters]
        self._lost = lost
        self._last_id = ""
        self._backoff = Backoff(max_seconds=MAX_PAUSE_SECONDS, random=SystemRandom())

    async def events(self) -> AsyncIterator[NodeEvent]:
        """Yield the events, without an end; RegistryError if it will not pass by itself."""
        while True:
            try:
                async for event in self._connection():
                    self._backoff.reset()
                    yield event
            except RegistryError as error:
                if not error.transient:
                    raise
                self._lost(error)
            await asyncio.sleep(self._backoff.pause())

    async def _connection(self) -> AsyncIterator[NodeEvent]:
        """Yield the events of one connection."""
        headers = {"Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        async with self._client.stream("/nodes", self._query, headers=headers) as response:
            fields: dict[str, str] = {}
            async for line in _lines(response):
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                elif "event" in fields:
                    yield _event(fields)
                    self._last_id = fields.get("id", self._last_id)
                    fields = {}
                else:
                    fields = {}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Yield the lines of a stream; RegistryError if it falls silent or is interrupted."""
    pending = b""
    while True:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                part = await response.content.readany()
        except TimeoutError as error:
            raise error_for_exception(error, limit=SILENCE_SECONDS, tls=False) from error
        if not part:
            return
        *lines, pending = (pending + part).split(b"\n")
        if len(pending) > MAX_EVENT_BYTES:
            raise NotARegistry(f"it sends an event of more than {MAX_EVENT_BYTES} bytes")
        for line in lines:
            yield line.decode("utf-8", "replace")


def _event(fields: Mapping[str, str]) -> NodeEvent:
    kind, data = fields["event"], fields.get("data", "")
    try:
        if kind == "node":
            node = msgspec.json.decode(data, type=AddressedNode)
            return NodeEvent(kind="node", hostname=node.hostname, node=node)
        if kind in ("gone", "stale", "fresh"):
            hostname = msgspec.json.decode(data, type=_Host).hostname
            return msgspec.convert({"kind": kind, "hostname": hostname}, NodeEvent)
        if kind == "listed":
            listed = msgspec.json.decode(data, type=_Listed)
            return NodeEvent(kind="listed", warming_seconds=listed.warming_seconds)
        return msgspec.convert({"kind": kind}, NodeEvent)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotARegistry(f"it sends an event that is none of a registry: {error}") from error
