"""An engine that answers as the real one, and notes changes instead of making them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from agent.engine.errors import NetworkNotFound, ObjectNotFound
from agent.engine.models import (
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
from agent.engine.protocol import Engine

# No container of the engine has such an id: those are hexadecimal.
PREFIX = "dry-run-"
# Nothing is known of an image before it is pulled to this host.
UNKNOWN_IMAGE = Image(id="", labels={}, tcp_ports=frozenset(), env={}, local=False)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A stop of a container that is up, and the seconds that it has to end."""

    container_id: str
    seconds: int


class DryEngine:
    """Passes reads on to the real engine, and nothing else.

    Attributes:
        pulled: The references of the images that would be pulled.
        stops: The stops of containers that are up.

    """

    def __init__(self, real: Engine) -> None:
        self.pulled: set[str] = set()
        self.stops: list[Stop] = []
        self._real = real
        self._made: dict[str, InspectedContainer] = {}
        self._changed: dict[str, InspectedContainer] = {}
        self._removed: set[str] = set()
        self._volumes: dict[str, Mapping[str, str] | None] = {}
        self._networks: dict[str, Network] = {}

    async def info(self) -> EngineInfo:
        """Ask the engine."""
        return await self._real.info()

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List those that would be there."""
        here = await self._real.containers(label=label, seconds=seconds)
        return self._as_changed(here, lambda made: _carries(made.labels, label))

    def _as_changed(
        self, here: list[Container], is_listed: Callable[[InspectedContainer], bool]
    ) -> list[Container]:
        """Return a list of the real engine as it would be, with the new containers of it."""
        listed = [*here, *filter(is_listed, self._made.values())]
        return [self._changed.get(each.id, each) for each in listed if each.id not in self._removed]

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Return a container as it would be."""
        if container_id in self._removed:
            raise ObjectNotFound(f"No such container: {container_id}")
        known = self._made.get(container_id) or self._changed.get(container_id)
        return known or await self._real.inspect(container_id)

    async def create(self, spec: ContainerSpec) -> str:
        """Record a container that would be made."""
        image = await self.image(spec.image)
        made = InspectedContainer(
            id=f"{PREFIX}{len(self._made) + 1}",
            name=spec.name,
            image=spec.image,
            image_id=image.id if image is not None else "",
            state="created",
            labels=spec.labels,
            ports={},
            network=spec.network or "default",
            started_at=None,
            finished_at=None,
            exit_code=None,
            restarts=0,
            oom_killed=False,
            error="",
            env=spec.env,
            cpu=spec.cpu,
            memory=spec.memory,
            volumes=spec.volumes,
            autostart=spec.autostart,
        )
        self._made[made.id] = made
        return made.id

    async def _change(self, container_id: str, **changes: object) -> None:
        changed = msgspec.structs.replace(await self.inspect(container_id), **changes)
        (self._made if container_id in self._made else self._changed)[container_id] = changed

    async def publish(self, container_id: str, ports: Collection[int]) -> None:
        """Record which ports of the host a container has once it runs."""
        await self._change(container_id, ports=dict.fromkeys(ports, ""))

    async def start(self, container_id: str) -> None:
        """Record that it would run."""
        await self._change(container_id, state="running", restarts=0, error="")

    async def stop(self, container_id: str, seconds: int) -> None:
        """Record that it would end."""
        before = await self.inspect(container_id)
        if before.state in ("running", "restarting", "paused"):
            self.stops.append(Stop(container_id=container_id, seconds=seconds))
            await self._change(container_id, state="exited", health=None)

    async def pause(self, container_id: str) -> None:
        """Record that it would stand still."""
        await self._change(container_id, state="paused")

    async def unpause(self, container_id: str) -> None:
        """Record that it would go on."""
        await self._change(container_id, state="running")

    async def remove(self, container_id: str) -> None:
        """Record its removal."""
        self._removed.add(container_id)

    async def rename(self, container_id: str, name: str) -> None:
        """Record its name."""
        await self._change(container_id, name=name)

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        """Record whether the engine would start it."""
        await self._change(container_id, autostart=enabled)

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Record its limits."""
        await self._change(container_id, cpu=cpu, memory=memory)

    async def image(self, reference: str) -> Image | None:
        """Return an image of this host, or one that would be pulled."""
        here = await self._real.image(reference) if reference else UNKNOWN_IMAGE
        return UNKNOWN_IMAGE if here is None and reference in self.pulled else here

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Ask for the image's manifest instead."""
        progress(PullProgress(done_bytes=0, total_bytes=0))
        await self._real.find_manifest(reference)
        self.pulled.add(reference)

    async def images(self) -> list[ListedImage]:
        """List those that are there."""
        return await self._real.images()

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        """Return what happened."""
        return await self._real.image_events(reference, since=since)

    async def remove_image(self, reference: str) -> None:
        """Do nothing: no change of an app removes one."""
        del reference

    async def find_manifest(self, reference: str) -> None:
        """Ask the server of the image."""
        await self._real.find_manifest(reference)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a volume as it would be."""
        if name in self._volumes:
            return self._volumes[name]
        return await self._real.volume_labels(name)

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        """List those that would be there."""
        listed = {**await self._real.volumes(label=label), **self._volumes}
        return {
            name: labels
            for name, labels in listed.items()
            if labels is not None and _carries(labels, label)
        }

    async def volume_users(self, name: str) -> list[Container]:
        """List those that would use it."""
        here = await self._real.volume_users(name)
        return self._as_changed(here, lambda made: name in made.volumes.values())

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Record a volume that would be made."""
        if await self.volume_labels(name) is None:
            self._volumes[name] = labels

    async def remove_volume(self, name: str) -> None:
        """Record its removal."""
        self._volumes[name] = None

    async def network(self, name: str) -> Network | None:
        """Return a network as it would be."""
        return self._networks.get(name) or await self._real.network(name)

    async def create_network(self, wanted: Network) -> None:
        """Record a network that would be made."""
        self._networks[wanted.name] = wanted

    async def connect(self, container_id: str, network: str) -> None:
        """Record that it would be connected; NetworkNotFound."""
        if await self.network(network) is None:
            raise NetworkNotFound(f"network {network} not found")
        await self._change(container_id, networks=frozenset({network}))

    async def processes(self, container_id: str) -> list[Process]:
        """List those that are there."""
        return await self._real.processes(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it as it is."""
        return await self._real.sample(container_id, priority=priority)

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        """Measure what is there."""
        return await self._real.disk_usage(seconds=seconds)

    def logs(
        self,
        container_id: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        until: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Return what was written."""
        return self._real.logs(
            container_id,
            tail=tail,
            since=since,
            until=until,
            follow=follow,
            timestamps=timestamps,
        )

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        """Do nothing, which succeeds."""
        del container_id, command, stdin, as_root, seconds
        return ExecResult(exit_code=0, output="")

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Return the content of a file that is there."""
        return await self._real.read_file(container_id, path)

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        """Do nothing: who the user is, only the container tells."""
        del container_id, paths, user
        return True

    def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        """Return a directory that is there."""
        return self._real.archive(container_id, path)

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        """Read the tar to its end, and drop it."""
        del container_id
        async for _ in tar:
            pass

    def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Return what happens."""
        return self._real.events(label, since=since)

    async def stopped_at(self, container_id: str) -> float | None:
        """Ask the engine."""
        return await self._real.stopped_at(container_id)

    async def current_run(self) -> EngineRun | None:
        """Ask the engine."""
        return await self._real.current_run()

    async def close(self) -> None:
        """Leave the real one open."""


def _carries(labels: Mapping[str, str], label: str | None) -> bool:
    """Return whether there is this label, ``KEY`` or ``KEY=VALUE``; any will do for None."""
    key, separator, value = (label or "").partition("=")
    return label is None or (key in labels and (not separator or labels[key] == value))
