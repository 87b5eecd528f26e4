"""Reads and streams of the Docker Engine."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from agent.engine import archives, decode
from agent.engine.errors import (
    AnswerTooLong,
    EngineError,
    ImageTooLarge,
    ImageUnavailable,
    ObjectNotFound,
)
from agent.engine.http import EngineClient, encoded_filters, escaped
from agent.engine.logins import full_reference
from agent.engine.models import (
    Container,
    ContainerEvent,
    DiskUsage,
    EngineInfo,
    EngineRun,
    Image,
    ImageEvent,
    InspectedContainer,
    ListedImage,
    Network,
    Process,
    Sample,
)
from agent.engine.states import ContainerStates
from agent.engine.streams import Budget, LogFrames, lines
from agent.engine.translation import from_top, well_formed, within

T = TypeVar("T")
MOST_LOGS = 64
MOST_EVENTS = 4
# The engine takes up to a second to measure, and a key that may only read can ask often.
MOST_MEASURED = 4
# The configuration of an image that fits has 64 KiB, and older engines tell it twice.
LONGEST_IMAGE = 1 << 20
LIST_TRIES = 10
LIST_PAUSE_SECONDS = 0.1
# The events that change a container.
ACTIONS = (
    *("create", "start", "die", "kill", "stop", "restart", "pause", "unpause", "destroy"),
    *("rename", "oom", "update", "health_status"),
)


class EngineReads:
    """What the engine reports, each in one call, which callers at the same time share.

    What a method returns is never older than the call. Reads take no thread of a command, and at
    most two calls for the same read are under way.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._states = ContainerStates()
        self._open_logs = Budget(most=MOST_LOGS, what="logs")
        self._open_events = Budget(most=MOST_EVENTS, what="streams of events")
        self._measuring = asyncio.Semaphore(MOST_MEASURED)

    async def info(self) -> EngineInfo:
        """Return the engine's version, its data directory, and the limits of the host."""
        return await self._client.get("/info", decode.info)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List the containers in any state, those with the label (``KEY`` or ``KEY=VALUE``).

        An engine whose disk is full may list a container in an earlier state, until it is inspected
        or changes again.
        """
        filters = {"label": [label]} if label else {}
        return await self._listed(filters, complete=label is None, seconds=seconds)

    async def _listed(
        self,
        filters: Mapping[str, list[str]],
        *,
        complete: bool = False,
        seconds: float | None = None,
    ) -> list[Container]:
        query = {"all": "1", "filters": encoded_filters(filters)}
        path = "/containers/json"
        found = await self._client.get(path, decode.containers, query=query, seconds=seconds)
        return self._states.corrected(found, complete=complete)

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Inspect a container; its state is right in lists from then on."""
        path = f"/containers/{container_id}/json"
        seen = await self._client.get(path, decode.inspected)
        self._states.inspected(seen)
        return seen

    async def image(self, reference: str) -> Image | None:
        """Return an image of this host, None if it is not there; ImageTooLarge."""
        path = f"/images/{quote(reference, safe='/:@')}/json"
        read = partial(decode.image, reference=reference)
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

    async def images(self) -> list[ListedImage]:
        """List the images of this host; AnswerTooLong."""
        left = LIST_TRIES
        while True:
            left -= 1
            try:
                return await self._client.get("/images/json", decode.images)
            except AnswerTooLong as error:
                raise AnswerTooLong(
                    "the labels of all images on this host make the engine's list too long; remove"
                    " images that nobody needs with `docker rmi`"
                ) from error
            except (ObjectNotFound, ImageUnavailable):
                # So answers the containerd image store if an image is removed meanwhile.
                if not left:
                    raise
            await asyncio.sleep(LIST_PAUSE_SECONDS)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a volume's labels, None if there is no such volume."""
        try:
            return await self._client.get(f"/volumes/{escaped(name)}", decode.volume_labels)
        except ObjectNotFound:
            return None

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of volumes by name; with the label (``KEY`` or ``KEY=VALUE``)."""
        query = {"filters": encoded_filters({"label": [label]} if label else {})}
        return await self._client.get("/volumes", decode.volumes, query=query)

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers, running or not, that a volume is mounted in."""
        return await self._listed({"volume": [name]})

    async def network(self, name: str) -> Network | None:
        """Return a network, None if there is none of that name."""
        try:
            return await self._client.get(f"/networks/{escaped(name)}", decode.network)
        except ObjectNotFound:
            return None

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes by the ps of the host; EngineConflict when it is not running."""
        path, query = f"/containers/{container_id}/top", {"ps_args": decode.PS}
        try:
            async with self._turn_to_measure():
                return await self._client.get(path, decode.processes, query=query)
        except EngineError as error:
            raise from_top(error) from error

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it once; return None when it is not running.

        With ``priority``, as for a change, it does not wait for other measurements.
        """
        path = f"/containers/{container_id}/stats"
        # Otherwise the engine waits a second for another sample.
        query = {"stream": "false", "one-shot": "true"}
        if priority:
            return await self._client.get(path, decode.sample, query=query)
        async with self._turn_to_measure():
            return await self._client.get(path, decode.sample, query=query)

    @asynccontextmanager
    async def _turn_to_measure(self) -> AsyncIterator[None]:
        await self._client.wait_for_turn(self._measuring)
        try:
            yield
        finally:
            self._measuring.release()

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        """Measure all volumes and containers, which may take minutes, but no longer than this.

        Engines before 23.0 also measure the images.
        """
        path = "/system/df?type=volume&type=container"
        return await self._client.get(path, decode.disk_usage, seconds=seconds)

    async def logs(
        self,
        container_id: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        until: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Yield its output, and with ``follow`` also further output; close the generator to end.

        ``tail`` is a number of lines, ``since`` and ``until`` are Unix times; None means all. With
        ``timestamps`` each line begins with its time, in RFC 3339, and a blank.
        """
        query = {
            "stdout": "1",
            "stderr": "1",
            "tail": "all" if tail is None else str(tail),
            "since": "0" if since is None else f"{since:.9f}",
            "follow": "1" if follow else "0",
            "timestamps": "1" if timestamps else "0",
        }
        if until is not None:
            query["until"] = f"{until:.9f}"
        idle = None if follow else self._client.timeout_seconds
        path = f"/containers/{container_id}/logs"
        with self._open_logs.spent():
            frames = LogFrames()
            stream = self._client.stream("GET", path, query=query, idle_seconds=idle)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    # Each line is a frame: one by one, they would take a task and a write each.
                    content = b"".join(frames.contents(chunk))
                    if content:
                        yield content

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Return the content of a small regular file of it, running or not.

        Raises:
            ObjectNotFound: there is no such file.
            EngineConflict: it is no regular file.
            EngineError: it is larger than 1 MiB.

        """
        return await archives.read_file(self._client, container_id, path)

    def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        """Return a directory of a container, running or not, as a tar; close it to end.

        The names in it begin at the directory. While it is read, the engine does nothing else with
        the container.
        """
        return self._client.stream(
            "GET",
            archives.archive_path(container_id),
            query={"path": f"{path}/."},
            idle_seconds=archives.IDLE_SECONDS,
        )

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Yield the events that change containers with the label, until the engine goes away.

        Those from the Unix time ``since`` on come first.
        """
        filters = {"type": ["container"], "label": [label], "event": list(ACTIONS)}
        with self._open_events.spent():
            async with aclosing(self._events(filters, since=since)) as entries:
                async for entry in entries:
                    with well_formed():
                        event = decode.event(entry, label)
                    self._states.changed(event.container_id)
                    yield event
        self._client.forget_version()  # the engine stops, and may come back in another version

    async def stopped_at(self, container_id: str) -> float | None:
        """Return the Unix time at which a container was stopped by request.

        None if that is not the last of its starts and stops in this run of the engine, which
        remembers a few hundred events.
        """
        filters = {"type": ["container"], "container": [container_id], "event": ["start", "stop"]}
        return await self._past_events(filters, decode.stop_time, since=1)

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        """Return what happened since a Unix time to a reference, or to the image that it names now.

        The oldest is first. The engine remembers a few hundred events, and none of a run before.
        """
        image = await self.image(reference)
        names = {full_reference(reference), *([image.id] if image is not None else ())}
        read = partial(decode.image_events, names=names)
        return await self._past_events({"type": ["image"]}, read, since=since)

    async def _past_events(
        self, filters: Mapping[str, list[str]], read: Callable[[list[bytes]], T], *, since: float
    ) -> T:
        """Return the result of ``read`` on the events that the engine remembers."""
        async with within(self._client.timeout_seconds):
            events = self._events(filters, since=since, until=time.time())
            async with aclosing(events) as entries:
                past = [entry async for entry in entries]
        with well_formed():
            return read(past)

    async def _events(
        self, filters: Mapping[str, list[str]], *, since: float, until: float | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the lines, without those of containers whose labels take more than a line may.

        Anybody who uses the engine can make such a container, and others have events, too.
        """
        query = {"filters": encoded_filters(filters), "since": f"{since:.9f}"}
        if until is not None:
            query["until"] = f"{until:.9f}"
        chunks = self._client.stream("GET", "/events", query=query)
        async with aclosing(chunks), aclosing(lines(chunks, skip_long=True)) as entries:
            async for entry in entries:
                yield entry

    async def current_run(self) -> EngineRun | None:
        """Return the present run of the engine, None if it cannot be distinguished from another.

        The run made the default bridge, which the engine makes at each start. There may be no
        bridge; and with live-restore it stays, as the containers do.
        """
        try:
            return await self._client.get("/networks/bridge", decode.engine_run)
        except ObjectNotFound:
            return None
