"""Docker Engine behind our protocol."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

from agent.engine.api import decoding
from agent.engine.api.client import EngineClient, encoded_filters, escaped
from agent.engine.api.streams import Budget, LogFrames
from agent.engine.api.translation import from_top
from agent.engine.docker import archives, networks
from agent.engine.docker.commands import Client, CommandKind, Commands
from agent.engine.docker.events import Events
from agent.engine.docker.exec import execute
from agent.engine.docker.host_config import host_options, restart_policy
from agent.engine.docker.images import EngineImages
from agent.engine.docker.owners import give_to
from agent.engine.docker.states import ContainerStates
from agent.engine.errors import (
    EndpointLeft,
    EngineConflict,
    EngineError,
    EngineUnavailable,
    ObjectNotFound,
)
from agent.engine.logins import ImageRegistryLogin, full_reference
from agent.engine.models import (
    MIB,
    Container,
    ContainerEvent,
    ContainerSpec,
    DiskUsage,
    EngineInfo,
    EngineRun,
    ExecResult,
    Image,
    ImageEvent,
    InspectedContainer,
    ListedImage,
    Network,
    Process,
    PullProgress,
    Sample,
)

PULL_SECONDS = 3600.0
PULL_IDLE_SECONDS = 120.0
POLL_SECONDS = 0.1
MOST_LOGS = 64
# The engine takes up to a second to measure, and a key that may only read can ask often.
MOST_MEASURED = 4
# The response must be sent within the time limit that the operator set.
SHARE = 0.9


class DockerEngine:
    """The Docker Engine at a local socket: docker-py for commands, aiohttp for the rest.

    Reads take no thread of a command, and at most two calls for the same read are under way. The
    time limit of a command or read begins when the engine is asked, not when the caller begins to
    wait for its turn.
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
        self._images = EngineImages(
            client=self._client,
            logins=logins,
            pull_seconds=pull_seconds,
            idle_seconds=pull_idle_seconds,
        )
        self._events = Events(client=self._client)
        self._states = ContainerStates()
        self._logs = Budget(most=MOST_LOGS, what="logs")
        self._measuring = asyncio.Semaphore(MOST_MEASURED)

    def use_logins(self, logins: Sequence[ImageRegistryLogin]) -> None:
        """Use other logins at registries of images, from the next pull on."""
        self._images.logins = tuple(logins)

    async def info(self) -> EngineInfo:
        """Return the engine's version, its data directory, and the limits of the host."""
        return await self._client.get("/info", decoding.info)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List containers in one call, which callers at the same time share."""
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
        found = await self._client.get(path, decoding.containers, query=query, seconds=seconds)
        return self._states.corrected(found, complete=complete)

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Inspect a container; its state is right in lists from then on."""
        path = f"/containers/{container_id}/json"
        seen = await self._client.get(path, decoding.inspected)
        self._states.inspected(seen)
        return seen

    async def create(self, spec: ContainerSpec) -> str:
        """Create a container from the spec alone; return its id."""

        def work(client: Client) -> str:
            created = client.create_container(
                image=spec.image,
                command=list(spec.command) or None,
                entrypoint=spec.entrypoint or None,
                name=spec.name,
                labels=dict(spec.labels),
                environment=dict(spec.env),
                ports=sorted({inside for inside, _ in spec.ports}),
                stop_timeout=spec.stop_seconds,
                use_config_proxy=False,  # the settings of the agent's user may hold a password
                host_config=client.create_host_config(**host_options(spec)),
            )
            return str(created["Id"])

        return await self._commands.call(work)

    async def start(self, container_id: str) -> None:
        """Start it, after removing what an earlier run has left of it in its network."""
        try:
            await self._start(container_id)
        except EndpointLeft:
            await networks.remove_endpoint(self._commands, await self.inspect(container_id))
            await self._start(container_id)

    async def _start(self, container_id: str) -> None:
        await self._commands.call(lambda client: client.start(container_id))
        self._states.changed(container_id)

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
        self._states.changed(container_id)

    async def pause(self, container_id: str) -> None:
        """Pause a container."""
        await self._commands.call(lambda client: client.pause(container_id))
        self._states.changed(container_id)

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""
        await self._commands.call(lambda client: client.unpause(container_id))
        self._states.changed(container_id)

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
            self._states.gone(container_id)
            return
        raise EngineUnavailable("the container engine does not finish the removal of the container")

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        """Set the container's restart policy."""
        policy = {"Name": restart_policy(enabled=enabled)}
        await self._commands.call(
            lambda client: client.update_container(container_id, restart_policy=policy)
        )

    async def rename(self, container_id: str, name: str) -> None:
        """Rename a container."""
        await self._commands.call(lambda client: client.rename(container_id, name))

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits; without a limit of swap, the engine refuses that of memory."""
        await self._commands.call(
            lambda client: client.update_container(
                container_id,
                cpu_period=decoding.CPU_PERIOD,
                cpu_quota=cpu * decoding.CPU_PERIOD // 100,
                mem_limit=memory * MIB,
                memswap_limit=memory * MIB,
            )
        )

    async def image(self, reference: str) -> Image | None:
        """Look for an image on this host."""
        return await self._images.get(reference)

    async def images(self) -> list[ListedImage]:
        """List the images of this host."""
        return await self._images.list()

    async def remove_image(self, reference: str) -> None:
        """Remove a tag or an image, never by force, and no other image with it."""
        await self._commands.call(
            lambda client: client.remove_image(reference, force=False, noprune=True)
        )

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Fetch an image, within the limits of time."""
        await self._images.pull(reference, progress)

    async def find_manifest(self, reference: str) -> None:
        """Ask for the manifest of an image, with the login for its server."""
        await self._images.find_manifest(reference)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a volume's labels, None if there is no such volume."""
        try:
            return await self._client.get(f"/volumes/{escaped(name)}", decoding.volume_labels)
        except ObjectNotFound:
            return None

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        """List volumes in any state, used or not."""
        query = {"filters": encoded_filters({"label": [label]} if label else {})}
        return await self._client.get("/volumes", decoding.volumes, query=query)

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers that a volume is mounted in."""
        return await self._listed({"volume": [name]})

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume with the default driver and no options."""
        await self._commands.call(lambda client: client.create_volume(name, labels=dict(labels)))

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and its content.

        docker-py escapes no slash, so a name that needs an escape would be another path.
        """
        try:
            if escaped(name) != name:
                return
            await self._commands.call(lambda client: client.remove_volume(name))
        except ObjectNotFound:
            return

    async def network(self, name: str) -> Network | None:
        """Return a network, None if there is none of that name."""
        return await networks.find_network(self._client, name)

    async def create_network(self, wanted: Network) -> None:
        """Create a bridge network."""
        await networks.create_network(self._commands, wanted)

    async def connect(self, container_id: str, network: str) -> None:
        """Connect a container to a network."""
        await networks.connect(self._commands, container_id, network)

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes by the ps of the engine's host."""
        path = f"/containers/{container_id}/top"
        try:
            async with self._turn_to_measure():
                return await self._client.get(
                    path, decoding.processes, query={"ps_args": decoding.PS}
                )
        except EngineError as error:
            raise from_top(error) from error

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it once, without waiting a second for another sample as the engine does."""
        if priority:
            return await self._sample(container_id)
        async with self._turn_to_measure():
            return await self._sample(container_id)

    @asynccontextmanager
    async def _turn_to_measure(self) -> AsyncIterator[None]:
        await self._client.wait_for_turn(self._measuring)
        try:
            yield
        finally:
            self._measuring.release()

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        """Measure volumes and containers. Engines before 23.0 also measure the images."""
        path = "/system/df?type=volume&type=container"
        return await self._client.get(path, decoding.disk_usage, seconds=seconds)

    async def _sample(self, container_id: str) -> Sample | None:
        path = f"/containers/{container_id}/stats"
        query = {"stream": "false", "one-shot": "true"}
        return await self._client.get(path, decoding.sample, query=query)

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
        """Yield its standard output and standard error, in the order of writing."""
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
        idle = None if follow else self._seconds
        path = f"/containers/{container_id}/logs"
        with self._logs.spent():
            frames = LogFrames()
            stream = self._client.stream("GET", path, query=query, idle_seconds=idle)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    # Each line is a frame: one by one, they would take a task and a write each.
                    content = b"".join(frames.contents(chunk))
                    if content:
                        yield content

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        """Run a command, whose standard input ends after ``stdin``."""
        own = self._seconds / 2  # what the engine may need for itself
        limit = own if seconds is None else seconds
        user = "0" if as_root else ""
        return await self._commands.call(
            lambda client: execute(client, container_id, command, stdin, limit, user=user),
            kind=CommandKind.PROGRAM,
            seconds=limit + own,
        )

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Read a small regular file; a link is not followed."""
        return await archives.read_file(self._client, container_id, path)

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        """Give directories that root owns to a user of the container."""
        return await give_to(self._client, container_id, paths, user)

    def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        """Return a directory of it as a tar, while the engine packs it."""
        return archives.packed(self._client, container_id, path)

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        """Unpack a tar in its root directory, as it comes."""
        await archives.unpack(self._client, container_id, tar)

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Yield the events that change containers with the label."""
        async with aclosing(self._events.follow(label, since=since)) as events:
            async for event in events:
                self._states.changed(event.container_id)
                yield event

    async def stopped_at(self, container_id: str) -> float | None:
        """Return when it was stopped by request, from the events that the engine remembers."""
        return await self._events.stopped_at(container_id)

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        """Return what happened to a reference, or to the image that it names now."""
        image = await self.image(reference)
        names = {full_reference(reference), *([image.id] if image is not None else ())}
        return await self._events.of_image(names, since=since)

    async def current_run(self) -> EngineRun | None:
        """Return the run that made the default bridge, which the engine makes at each start.

        There may be no bridge; and with live-restore it stays, as the containers do.
        """
        try:
            return await self._client.get("/networks/bridge", decoding.engine_run)
        except ObjectNotFound:
            return None

    async def close(self) -> None:
        """Close all streams and reads; later calls fail."""
        self._commands.close()
        await self._client.close()
