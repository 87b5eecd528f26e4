"""An engine that passes every call on to another one, to be changed in one of them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping

from agent.engine.docker.engine import DockerEngine
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


class WrappedEngine:
    """Passes each call of the protocol on; without an override it behaves like the engine in it."""

    def __init__(self, engine: Engine | str) -> None:
        """Take an engine, or the address of a real one."""
        self.real: Engine = (
            DockerEngine(url=engine, timeout_seconds=30) if isinstance(engine, str) else engine
        )

    async def info(self) -> EngineInfo:
        return await self.real.info()

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        return await self.real.containers(label=label, seconds=seconds)

    async def inspect(self, container_id: str) -> InspectedContainer:
        return await self.real.inspect(container_id)

    async def create(self, spec: ContainerSpec) -> str:
        return await self.real.create(spec)

    async def start(self, container_id: str) -> None:
        await self.real.start(container_id)

    async def stop(self, container_id: str, seconds: int) -> None:
        await self.real.stop(container_id, seconds)

    async def pause(self, container_id: str) -> None:
        await self.real.pause(container_id)

    async def unpause(self, container_id: str) -> None:
        await self.real.unpause(container_id)

    async def remove(self, container_id: str) -> None:
        await self.real.remove(container_id)

    async def rename(self, container_id: str, name: str) -> None:
        await self.real.rename(container_id, name)

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        await self.real.set_autostart(container_id, enabled=enabled)

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        await self.real.limit(container_id, cpu=cpu, memory=memory)

    async def image(self, reference: str) -> Image | None:
        return await self.real.image(reference)

    async def images(self) -> list[ListedImage]:
        return await self.real.images()

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        return await self.real.image_events(reference, since=since)

    async def remove_image(self, reference: str) -> None:
        await self.real.remove_image(reference)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        await self.real.pull(reference, progress)

    async def find_manifest(self, reference: str) -> None:
        await self.real.find_manifest(reference)

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        return await self.real.give(container_id, paths, user)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        return await self.real.volume_labels(name)

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        return await self.real.volumes(label=label)

    async def volume_users(self, name: str) -> list[Container]:
        return await self.real.volume_users(name)

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        await self.real.create_volume(name, labels)

    async def remove_volume(self, name: str) -> None:
        await self.real.remove_volume(name)

    async def network(self, name: str) -> Network | None:
        return await self.real.network(name)

    async def create_network(self, wanted: Network) -> None:
        await self.real.create_network(wanted)

    async def connect(self, container_id: str, network: str) -> None:
        await self.real.connect(container_id, network)

    async def processes(self, container_id: str) -> list[Process]:
        return await self.real.processes(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        return await self.real.sample(container_id, priority=priority)

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        return await self.real.disk_usage(seconds=seconds)

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
        return self.real.logs(
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
        return await self.real.execute(
            container_id, command, stdin=stdin, as_root=as_root, seconds=seconds
        )

    async def read_file(self, container_id: str, path: str) -> bytes:
        return await self.real.read_file(container_id, path)

    def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        return self.real.archive(container_id, path)

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        await self.real.unpack(container_id, tar)

    def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        return self.real.events(label, since=since)

    async def stopped_at(self, container_id: str) -> float | None:
        return await self.real.stopped_at(container_id)

    async def current_run(self) -> EngineRun | None:
        return await self.real.current_run()

    async def close(self) -> None:
        await self.real.close()
