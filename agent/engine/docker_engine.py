"""Docker Engine behind our protocol."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec
import requests
from docker.utils import parse_repository_tag

from agent.engine import shapes
from agent.engine.connection import Client, Connection, Lane
from agent.engine.protocol import (
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
    ImageUnavailable,
    InspectedContainer,
    ObjectNotFound,
    Process,
    PullProgress,
    Sample,
)
from agent.engine.pulls import Pull, came_from_registry, pull_failure, pull_parameters
from agent.engine.raw_calls import checked, execute, read_file, url
from agent.engine.registry_logins import ImageRegistryLogin, login_header
from agent.engine.streams import Streams, frames, json_lines
from agent.engine.translation import top_failure, understood
from agent.engine.volumes import Volumes
from agent.engine.wire import INSPECT, from_inspect

ACTIONS = ["create", "start", "die", "pause", "unpause", "destroy", "rename", "oom", "update"]
PULL_IDLE_SECONDS = 120.0
POLL_SECONDS = 0.1
SIGN_OF_LIFE_SECONDS = 2.0
MOST_EVENTS = 4
MOST_PULLS = 32
MOST_LOGS = 64


class DockerEngine(Volumes):
    """The Docker Engine at a local socket, through docker-py's low-level client."""

    def __init__(
        self,
        *,
        url: str,
        timeout_seconds: float,
        logins: Sequence[ImageRegistryLogin] = (),
        pull_idle_seconds: float = PULL_IDLE_SECONDS,
    ) -> None:
        super().__init__(Connection(url=url, timeout_seconds=timeout_seconds))
        self._logins = tuple(logins)
        self._pull_idle_seconds = pull_idle_seconds
        client = self._connection.fresh_client
        # Each kind by itself, so that nobody who reads logs keeps others from pulling.
        self._events = Streams(client, most=MOST_EVENTS, what="streams of events")
        self._pulls = Streams(client, most=MOST_PULLS, what="pulls")
        self._logs = Streams(client, most=MOST_LOGS, what="logs")

    async def info(self) -> EngineInfo:
        """Say what engine this is."""
        said = await self._connection.call(lambda client: client.info())
        with understood():
            return shapes.from_info(said)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List containers in one call, however many there are."""
        return await self._listed({"label": [label]} if label else {}, seconds=seconds)

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Look at one container."""
        return from_inspect(await self._connection.get(f"/containers/{container_id}/json", INSPECT))

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container from the plan and nothing else."""

        def work(client: Client) -> str:
            created = client.create_container(
                image=spec.image,
                name=spec.name,
                labels=dict(spec.labels),
                environment=dict(spec.env),
                ports=sorted({inside for inside, _ in spec.ports}),
                stop_timeout=spec.stop_seconds,
                host_config=client.create_host_config(**shapes.host_options(spec)),
            )
            with understood():
                return str(created["Id"])

        return await self._connection.call(work, lane=Lane.SLOW)

    async def start(self, container_id: str) -> None:
        """Start it."""
        await self._connection.call(lambda client: client.start(container_id), lane=Lane.SLOW)

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it; the engine kills it after ``seconds``, and is asked meanwhile if it lives."""
        stopping = asyncio.ensure_future(
            self._connection.call(
                lambda client: client.stop(container_id, timeout=seconds),
                seconds=seconds + self._connection.timeout_seconds,
                lane=Lane.SLOW,
            )
        )
        try:
            while not (await asyncio.wait({stopping}, timeout=SIGN_OF_LIFE_SECONDS))[0]:
                limit = self._connection.timeout_seconds / 2
                await self._connection.call(lambda client: client.ping(), seconds=limit)
            await stopping
        finally:
            stopping.cancel()

    async def unpause(self, container_id: str) -> None:
        """Let it go on."""
        await self._connection.call(lambda client: client.unpause(container_id))

    async def remove(self, container_id: str) -> None:
        """Remove it, and wait until it is gone where somebody else is removing it."""
        deadline = time.monotonic() + self._connection.timeout_seconds
        try:
            while time.monotonic() < deadline:
                try:
                    await self._connection.call(
                        lambda client: client.remove_container(container_id, v=True, force=True),
                        lane=Lane.SLOW,
                    )
                except EngineConflict:
                    await asyncio.sleep(POLL_SECONDS)
        except ObjectNotFound:
            return
        raise EngineUnavailable("the container engine does not get done with a removal")

    async def rename(self, container_id: str, name: str) -> None:
        """Give it another name."""
        await self._connection.call(lambda client: client.rename(container_id, name))

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits; swap always goes with memory, or the engine refuses."""
        await self._connection.call(
            lambda client: client.update_container(
                container_id,
                cpu_period=shapes.PERIOD,
                cpu_quota=cpu * shapes.PERIOD // 100,
                mem_limit=memory * shapes.MIB,
                memswap_limit=memory * shapes.MIB,
            ),
            lane=Lane.SLOW,
        )

    async def image(self, reference: str) -> Image | None:
        """Look for an image on this host."""
        try:
            entry = await self._connection.call(lambda client: client.inspect_image(reference))
        except ImageUnavailable:
            return None
        with understood():
            digests = entry.get("RepoDigests") or []
            return shapes.from_image(entry, pulled=came_from_registry(reference, digests))

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Fetch an image; one that makes no progress for two minutes is given up."""
        parameters = pull_parameters(reference)
        repository, _ = parse_repository_tag(reference)

        def request(client: Client) -> requests.Response:
            return checked(
                client.post(
                    url(client, "/images/create"),
                    params=parameters,
                    headers=login_header(repository, self._logins),
                    stream=True,
                    timeout=(self._connection.timeout_seconds, self._pull_idle_seconds),
                )
            )

        pull = Pull(progress)
        try:
            async with aclosing(self._pulls.read(request, json_lines)) as report:
                async for entry in report:
                    with understood():
                        pull.take(entry)
        except EngineTimeout as error:
            await self.info()  # or else it is the engine that hangs, and not the pull
            raise ImageUnavailable(
                f"its pull made no progress for {self._pull_idle_seconds:g} seconds"
            ) from error
        except EngineUnavailable:
            raise
        except EngineError as error:
            raise pull_failure(str(error)) from error

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes by the ps of the engine's host."""
        try:
            told = await self._connection.call(
                lambda client: client.top(container_id, ps_args=shapes.PS),
                lane=Lane.MEASURING,
            )
        except EngineError as error:
            raise top_failure(error) from error
        with understood():
            return shapes.from_top(told)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it at once, without the engine's second of waiting."""
        told = await self._connection.call(
            lambda client: client.stats(container_id, stream=False, one_shot=True),
            lane=Lane.QUICK if priority else Lane.MEASURING,
        )
        with understood():
            return shapes.from_stats(told)

    def logs(
        self, container_id: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Give what it wrote to its output and its errors, in the order of writing."""
        parameters = {
            "stdout": "1",
            "stderr": "1",
            "tail": "all" if tail is None else str(tail),
            "since": "0" if since is None else f"{since:.9f}",
            "follow": "1" if follow else "0",
        }
        idle = None if follow else self._connection.timeout_seconds

        def request(client: Client) -> requests.Response:
            return checked(
                client.get(
                    url(client, f"/containers/{container_id}/logs"),
                    params=parameters,
                    stream=True,
                    timeout=(self._connection.timeout_seconds, idle),
                )
            )

        return self._logs.read(request, frames)

    async def execute(
        self, container_id: str, command: list[str], *, stdin: bytes = b""
    ) -> ExecResult:
        """Run a command as root, with its input closed behind ``stdin``."""
        seconds = self._connection.timeout_seconds / 2  # the engine needs some of it for itself
        return await self._connection.call(
            lambda client: execute(client, container_id, command, stdin, seconds), lane=Lane.SLOW
        )

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Read a small regular file; a link is not followed."""
        return await self._connection.call(lambda client: read_file(client, container_id, path))

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Tell what happens to containers with the label, of the actions that change them."""
        filters = {"type": ["container"], "label": [label], "event": ACTIONS}

        def request(client: Client) -> requests.Response:
            return checked(
                client.get(
                    url(client, "/events"),
                    params={
                        "filters": msgspec.json.encode(filters).decode(),
                        "since": f"{since:.9f}",
                    },
                    stream=True,
                    timeout=(self._connection.timeout_seconds, None),
                )
            )

        async with aclosing(self._events.read(request, json_lines)) as entries:
            async for entry in entries:
                with understood():
                    event = shapes.from_event(entry, label)
                yield event

    async def close(self) -> None:
        """End all streams, and take no more calls."""
        for streams in (self._events, self._pulls, self._logs):
            streams.close()
        self._connection.close()
