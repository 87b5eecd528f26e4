"""Docker Engine behind our protocol."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from urllib.parse import quote

import msgspec

from agent.engine import models
from agent.engine.client import EngineClient
from agent.engine.commands import Client, CommandKind, Commands
from agent.engine.errors import from_pull, from_top, understood, within
from agent.engine.exec import execute
from agent.engine.logins import ImageRegistryLogin, login_header, pull_query
from agent.engine.protocol import (
    MIB,
    Container,
    ContainerEvent,
    ContainerSpec,
    EngineConflict,
    EngineError,
    EngineInfo,
    EngineTimeout,
    EngineUnavailable,
    ExecResult,
    Image,
    ImageServerUnavailable,
    ImageUnavailable,
    InspectedContainer,
    ObjectNotFound,
    Process,
    PullProgress,
    Sample,
)
from agent.engine.streams import Budget, LogFrames, Pull, lines

ACTIONS = ["create", "start", "die", "pause", "unpause", "destroy", "rename", "oom", "update"]
PULL_SECONDS = 3600.0
PULL_IDLE_SECONDS = 120.0
POLL_SECONDS = 0.1
SMALL_FILE = 1 << 20
MOST_EVENTS = 4
MOST_PULLS = 32
MOST_LOGS = 64
# The engine takes up to a second to measure, and a key that may only read can ask often.
MOST_MEASURED = 4
# The response must be sent within the time limit that the operator set.
SHARE = 0.9


class DockerEngine:
    """The Docker Engine at a local socket: docker-py for commands, aiohttp for the rest.

    Reads take no thread of a command, and at most two calls for the same read are under way. The
    time limit of a command begins when the engine is asked, that of a read when the caller asks.
    """

    def __init__(
        self,
        *,
        url: str,
        timeout_seconds: float,
        logins: Sequence[ImageRegistryLogin] = (),
        pull_seconds: float = PULL_SECONDS,
        pull_idle_seconds: float = PULL_IDLE_SECONDS,
    ) -> None:
        socket_path = url.removeprefix("unix://")
        self._seconds = timeout_seconds * SHARE
        self._client = EngineClient(socket_path=socket_path, timeout_seconds=self._seconds)
        self._commands = Commands(socket_path=socket_path, client=self._client)
        self._logins = tuple(logins)
        self._pull_seconds = pull_seconds
        self._pull_idle_seconds = pull_idle_seconds
        # Each kind has its own limit, so that readers of logs do not delay pulls.
        self._events = Budget(most=MOST_EVENTS, what="streams of events")
        self._pulls = Budget(most=MOST_PULLS, what="pulls")
        self._logs = Budget(most=MOST_LOGS, what="logs")
        self._measuring = asyncio.Semaphore(MOST_MEASURED)

    async def info(self) -> EngineInfo:
        """Return the engine's version, its data directory, and the limits of the host."""
        return await self._client.get("/info", models.info)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List containers in one call, which callers at the same time share."""
        return await self._listed({"label": [label]} if label else {}, seconds=seconds)

    async def _listed(
        self, filters: Mapping[str, list[str]], *, seconds: float | None = None
    ) -> list[Container]:
        query = {"all": "1", "filters": _json(filters)}
        path = "/containers/json"
        found = await self._client.get(path, models.containers, query=query, seconds=seconds)
        return list(found)  # it is shared

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Inspect a container."""
        return await self._client.get(f"/containers/{container_id}/json", models.inspected)

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container from the spec alone; return its id."""

        def work(client: Client) -> str:
            created = client.create_container(
                image=spec.image,
                command=list(spec.command) or None,
                name=spec.name,
                labels=dict(spec.labels),
                environment=dict(spec.env),
                ports=sorted({inside for inside, _ in spec.ports}),
                stop_timeout=spec.stop_seconds,
                use_config_proxy=False,  # the settings of the agent's user may hold a password
                host_config=client.create_host_config(**models.host_options(spec)),
            )
            return str(created["Id"])

        return await self._commands.call(work)

    async def start(self, container_id: str) -> None:
        """Start it."""
        await self._commands.call(lambda client: client.start(container_id))

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it; the engine kills it after ``seconds``, and is pinged meanwhile."""
        stopping = asyncio.ensure_future(
            self._commands.call(
                lambda client: client.stop(container_id, timeout=seconds),
                kind=CommandKind.PROGRAM,
                seconds=seconds + self._seconds,
            )
        )
        try:
            await self._client.while_it_answers(stopping)
        finally:
            stopping.cancel()

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""
        await self._commands.call(lambda client: client.unpause(container_id))

    async def remove(self, container_id: str) -> None:
        """Remove it; if it is being removed already, wait until it is gone."""
        deadline = time.monotonic() + self._seconds
        try:
            while time.monotonic() < deadline:
                try:
                    await self._commands.call(
                        lambda client: client.remove_container(container_id, v=False, force=True)
                    )
                except EngineConflict:
                    await asyncio.sleep(POLL_SECONDS)
        except ObjectNotFound:
            return
        raise EngineUnavailable("the container engine does not get done with a removal")

    async def rename(self, container_id: str, name: str) -> None:
        """Rename a container."""
        await self._commands.call(lambda client: client.rename(container_id, name))

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits; swap always goes with memory, or the engine refuses."""
        await self._commands.call(
            lambda client: client.update_container(
                container_id,
                cpu_period=models.PERIOD,
                cpu_quota=cpu * models.PERIOD // 100,
                mem_limit=memory * MIB,
                memswap_limit=memory * MIB,
            )
        )

    async def image(self, reference: str) -> Image | None:
        """Look for an image on this host."""
        path = f"/images/{quote(reference, safe='/:@')}/json"
        try:
            return await self._client.get(path, partial(models.image, reference=reference))
        except ImageUnavailable:
            return None

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Fetch an image, within the limits of time."""
        headers = await asyncio.to_thread(login_header, reference, self._logins)
        pull = Pull(progress)
        try:
            with self._pulls.spent():
                async with asyncio.timeout(self._pull_seconds):
                    await self._pull(reference, headers, pull)
        except TimeoutError as error:
            raise self._pull_is_late(f"took longer than {self._pull_seconds:g} s") from error
        except EngineTimeout as error:
            await self.info()  # fails if it is the engine that hangs, and not the pull
            raise self._pull_is_late(
                f"made no progress for {self._pull_idle_seconds:g} s"
            ) from error
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise from_pull(str(error)) from error

    def _pull_is_late(self, how: str) -> ImageServerUnavailable:
        return ImageServerUnavailable(
            f"its pull {how}; a pull has {self._pull_seconds:g} s in all (`apps.pull_seconds`), and"
            f" {self._pull_idle_seconds:g} s without progress"
        )

    async def _pull(self, reference: str, headers: Mapping[str, str], pull: Pull) -> None:
        chunks = self._client.stream(
            "POST",
            "/images/create",
            query=pull_query(reference),
            headers=headers,
            idle_seconds=self._pull_idle_seconds,
        )
        async with aclosing(chunks), aclosing(lines(chunks)) as report:
            async for line in report:
                pull.take(line)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a volume's labels, None if there is no such volume."""
        try:
            return await self._client.get(f"/volumes/{name}", models.volume_labels)
        except ObjectNotFound:
            return None

    async def volumes(self, *, label: str) -> Mapping[str, Mapping[str, str]]:
        """List volumes in any state, used or not."""
        query = {"filters": _json({"label": [label]})}
        return await self._client.get("/volumes", models.volumes, query=query)

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers that a volume is mounted in."""
        return await self._listed({"volume": [name]})

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume with the default driver and no options."""
        await self._commands.call(lambda client: client.create_volume(name, labels=dict(labels)))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and its content."""
        try:
            await self._commands.call(lambda client: client.remove_volume(name))
        except ObjectNotFound:
            return

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes by the ps of the engine's host."""
        path = f"/containers/{container_id}/top"
        try:
            async with within(self._seconds), self._measuring:
                return await self._client.get(path, models.processes, query={"ps_args": models.PS})
        except EngineError as error:
            raise from_top(error) from error

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it once, without the second that the engine waits for another sample."""
        if priority:
            return await self._sample(container_id)
        async with within(self._seconds), self._measuring:
            return await self._sample(container_id)

    async def _sample(self, container_id: str) -> Sample | None:
        path = f"/containers/{container_id}/stats"
        query = {"stream": "false", "one-shot": "true"}
        return await self._client.get(path, models.sample, query=query)

    async def logs(
        self, container_id: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Return what it wrote to its output and its errors, in the order of writing."""
        query = {
            "stdout": "1",
            "stderr": "1",
            "tail": "all" if tail is None else str(tail),
            "since": "0" if since is None else f"{since:.9f}",
            "follow": "1" if follow else "0",
        }
        idle = None if follow else self._seconds
        path = f"/containers/{container_id}/logs"
        with self._logs.spent():
            frames = LogFrames()
            stream = self._client.stream("GET", path, query=query, idle_seconds=idle)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    for content in frames.contents(chunk):
                        yield content

    async def execute(
        self, container_id: str, command: list[str], *, stdin: bytes = b""
    ) -> ExecResult:
        """Run a command as root, with its input closed behind ``stdin``."""
        seconds = self._seconds / 2  # the engine needs some of it for itself
        return await self._commands.call(
            lambda client: execute(client, container_id, command, stdin, seconds),
            kind=CommandKind.PROGRAM,
        )

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Read a small regular file; a link is not followed."""
        archive = await self._client.beginning(
            f"/containers/{container_id}/archive", query={"path": path}, most=SMALL_FILE
        )
        return models.file_content(archive, path)

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Return what happens to containers with the label, of the actions that change them."""
        filters = {"type": ["container"], "label": [label], "event": ACTIONS}
        query = {"filters": _json(filters), "since": f"{since:.9f}"}
        with self._events.spent():
            chunks = self._client.stream("GET", "/events", query=query)
            async with aclosing(chunks), aclosing(lines(chunks)) as entries:
                async for entry in entries:
                    with understood():
                        event = models.event(entry, label)
                    yield event
        self._client.forget_version()  # the engine stops, and may come back in another version

    async def close(self) -> None:
        """Close all streams and reads; later calls fail."""
        self._commands.close()
        await self._client.close()


def _json(filters: Mapping[str, list[str]]) -> str:
    return msgspec.json.encode(filters).decode()
