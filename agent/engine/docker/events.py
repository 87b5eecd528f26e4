"""Events of containers as they happen, and those of containers and images that the engine keeps."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing

from agent.engine.api import event_decoding
from agent.engine.api.client import EngineClient, encoded_filters
from agent.engine.api.streams import Budget, lines
from agent.engine.api.translation import well_formed, within
from agent.engine.models import ContainerEvent, ImageEvent

ACTIONS = [
    "create",
    "start",
    "die",
    "kill",
    "stop",
    "restart",
    "pause",
    "unpause",
    "destroy",
    "rename",
    "oom",
    "update",
    "health_status",
]
STOPS_AND_STARTS = ["start", "stop"]
MOST_EVENTS = 4


class Events:
    """Reads events."""

    def __init__(self, *, client: EngineClient) -> None:
        self._client = client
        self._budget = Budget(most=MOST_EVENTS, what="streams of events")

    async def follow(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Yield what happens to containers with the label, of the actions that change them."""
        filters = {"type": ["container"], "label": [label], "event": ACTIONS}
        query = {"filters": encoded_filters(filters), "since": f"{since:.9f}"}
        with self._budget.spent():
            chunks = self._client.stream("GET", "/events", query=query)
            async with aclosing(chunks), aclosing(_entries(chunks)) as entries:
                async for entry in entries:
                    with well_formed():
                        event = event_decoding.event(entry, label)
                    yield event
        self._client.forget_version()  # the engine stops, and may come back in another version

    async def stopped_at(self, container_id: str) -> float | None:
        """Return when a container was stopped by request, None if it was started since."""
        filters = {"type": ["container"], "container": [container_id], "event": STOPS_AND_STARTS}
        past = await self._past(filters, since=1)
        with well_formed():
            return event_decoding.stop_time(past)

    async def of_image(self, names: Collection[str], *, since: float) -> list[ImageEvent]:
        """Return the events of an image, which has these full references and ids."""
        past = await self._past({"type": ["image"]}, since=since)
        with well_formed():
            return event_decoding.image_events(past, names)

    async def _past(self, filters: Mapping[str, list[str]], *, since: float) -> list[bytes]:
        """Return the events that the engine remembers, the oldest first."""
        query = {
            "filters": encoded_filters(filters),
            "since": f"{since:.9f}",
            "until": f"{time.time():.9f}",
        }
        async with within(self._client.timeout_seconds):
            chunks = self._client.stream("GET", "/events", query=query)
            async with aclosing(chunks), aclosing(_entries(chunks)) as entries:
                return [entry async for entry in entries]


def _entries(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines, without those of containers whose labels take more than a line may.

    Anybody who uses the engine can make such a container, and other containers have events, too.
    """
    return lines(chunks, skip_long=True)
