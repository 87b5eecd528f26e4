"""An engine that passes every call on to another one, to be changed in one of them."""

from collections.abc import AsyncGenerator, Callable, Mapping

from agent.engine import DockerEngine
from agent.engine.protocol import (
    Container,
    ContainerEvent,
    ContainerSpec,
    Engine,
    EngineInfo,
    ExecResult,
    Image,
    InspectedContainer,
    Process,
    PullProgress,
    Sample,
)


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

    async def unpause(self, container_id: str) -> None:
        await self.real.unpause(container_id)

    async def remove(self, container_id: str) -> None:
        await self.real.remove(container_id)

    async def rename(self, container_id: str, name: str) -> None:
        await self.real.rename(container_id, name)

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        await self.real.limit(container_id, cpu=cpu, memory=memory)

    async def image(self, reference: str) -> Image | None:
        return await self.real.image(reference)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        await self.real.pull(reference, progress)

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        return await self.real.volume_labels(name)

    async def volumes(self, *, label: str) -> Mapping[str, Mapping[str, str]]:
        return await self.real.volumes(label=label)

    async def volume_users(self, name: str) -> list[Container]:
        return await self.real.volume_users(name)

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        await self.real.create_volume(name, labels)

    async def remove_volume(self, name: str) -> None:
        await self.real.remove_volume(name)

    async def processes(self, container_id: str) -> list[Process]:
        return await self.real.processes(container_id)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        return await self.real.sample(container_id, priority=priority)

    def logs(
        self, container_id: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        return self.real.logs(container_id, tail=tail, since=since, follow=follow)

    async def execute(
        self, container_id: str, command: list[str], *, stdin: bytes = b""
    ) -> ExecResult:
        return await self.real.execute(container_id, command, stdin=stdin)

    async def read_file(self, container_id: str, path: str) -> bytes:
        return await self.real.read_file(container_id, path)

    def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        return self.real.events(label, since=since)

    async def close(self) -> None:
        await self.real.close()
