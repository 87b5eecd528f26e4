"""A container engine in memory, whose calls a test can stop at any step."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from agent.engine.engine import Engine
from agent.engine.errors import (
    CommandTimeout,
    EngineConflict,
    EngineRejected,
    ImageUnavailable,
    InvalidParameter,
    NameInUse,
    ObjectNotFound,
)
from agent.engine.models import (
    MIB,
    Container,
    ContainerEvent,
    ContainerSpec,
    DiskUsage,
    EngineInfo,
    EngineRun,
    ExecResult,
    Health,
    Image,
    ImageEvent,
    InspectedContainer,
    ListedImage,
    Network,
    Process,
    PullProgress,
    Sample,
)
from tests.support.agent.engines.fake_state import (
    FakeContainer,
    FakeEngineState,
    created,
    file_of,
    has_label,
    inspected,
    listed,
    sampled,
)
from tests.support.agent.tars import packed

IMAGE = "app:1"
OTHER_IMAGE = "app:2"
BROKEN_IMAGE = "app:broken"
DATA_IMAGE = "app:data"
IMAGE_IDS = {IMAGE: "i1", OTHER_IMAGE: "i2", BROKEN_IMAGE: "i3", DATA_IMAGE: "i4"}
DECLARED = {DATA_IMAGE: ("/cache", "/data")}
# The steps of the container that shows before a stop whether ports can be published.
PROBE_STEPS = tuple(
    f"{when} {call} of a probe"
    for call in ("create", "start", "remove")
    for when in ("before", "after")
)


def fake_image(image_id: str, *volumes: str, data: str = "") -> Image:
    """Return an image that was built on the host; ``data`` is its label `rollcall.data`."""
    return Image(
        id=image_id,
        labels={"rollcall.data": data} if data else {},
        tcp_ports=frozenset(),
        env={},
        local=True,
        volumes=frozenset(volumes),
    )


async def passes(_container_id: str) -> int:
    """Return the exit code of a check that passes."""
    return 0


async def do_nothing(_step: str) -> None:
    """Stop at no step."""


class FakeEngine(Engine):
    """An engine; ``at_step`` is awaited before and after each call that changes something.

    Commands that are not run as root are checks: ``checked`` lists the containers, and ``check``
    returns their exit codes. ``health_of`` is what the checks of images find, by the id of each
    image that has one.
    """

    def __init__(
        self,
        state: FakeEngineState | None = None,
        at_step: Callable[[str], Awaitable[None]] = do_nothing,
    ) -> None:
        self.state = state or FakeEngineState()
        self.at_step = at_step
        self._happening = asyncio.Queue[ContainerEvent | None]()
        self.health_of = dict[str, Health]()
        self.checked = list[str]()
        self.check: Callable[[str], Awaitable[int]] = passes
        self.run = EngineRun(id="run-1", began_at=0)
        self.image_history = dict[str, list[ImageEvent]]()
        self._images = dict[str, Image]()
        for reference, image_id in IMAGE_IDS.items():
            self.tag(reference, fake_image(image_id, *DECLARED.get(reference, ())))

    @property
    def networks(self) -> dict[str, Network]:
        """The networks, by name."""
        return self.state.networks

    def tag(self, reference: str, image: Image) -> None:
        """Make a reference lead to this image; any other keeps its id."""
        self._images |= {reference: image, image.id: image}

    def untag(self, reference: str) -> None:
        """Remove a reference, or an image by its id."""
        del self._images[reference]

    @asynccontextmanager
    async def _step(self, call: str, ports: Collection[int] = ()) -> AsyncIterator[None]:
        call += " of a probe" * (0 in ports)
        await self.at_step(f"before {call}")
        yield
        await self.at_step(f"after {call}")

    def _find(self, container_id: str) -> FakeContainer:
        if container_id not in self.state.containers:
            raise ObjectNotFound(f"No such container: {container_id}")
        return self.state.containers[container_id]

    async def info(self) -> EngineInfo:
        return EngineInfo(version="1", cpus=4, memory=4096, data_root="/nowhere", init=True)

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        del seconds
        containers = self.state.containers.values()
        return [listed(each) for each in containers if has_label(each.labels, label)]

    async def inspect(self, container_id: str) -> InspectedContainer:
        return inspected(self._find(container_id))

    async def create(self, spec: ContainerSpec) -> str:
        async with self._step("create", [outside for _, outside in spec.ports]):
            if any(each.name == spec.name for each in self.state.containers.values()):
                raise NameInUse(f"The container name {spec.name} is already in use")
            image = await self.image(spec.image)
            if image is None:
                raise ImageUnavailable(f"No such image: {spec.image}")
            self.state.made += 1
            made = created(
                spec, f"c{self.state.made}", image=image, health=self.health_of.get(image.id)
            )
            self.state.containers[made.id] = made
        return made.id

    async def start(self, container_id: str) -> None:
        async with self._step("start", self._find(container_id).ports):
            container = self._find(container_id)
            if container.image_id == IMAGE_IDS[BROKEN_IMAGE]:
                raise EngineRejected("no such program")
            container.state, container.stopped_at = "running", None

    async def stop(self, container_id: str, seconds: int) -> None:
        async with self._step("stop"):
            container = self._find(container_id)
            assert seconds >= 0
            if container.state != "created":
                container.state, container.stopped_at = "exited", time.time()

    async def pause(self, container_id: str) -> None:
        async with self._step("pause"):
            self._find(container_id).state = "paused"

    async def unpause(self, container_id: str) -> None:
        async with self._step("unpause"):
            self._find(container_id).state = "running"

    async def remove(self, container_id: str) -> None:
        async with self._step("remove", self._find(container_id).ports):
            del self.state.containers[self._find(container_id).id]

    async def rename(self, container_id: str, name: str) -> None:
        async with self._step("rename"):
            container = self._find(container_id)
            if container.name == name:
                raise InvalidParameter(
                    "Renaming a container with the same name as its current name"
                )
            if any(each.name == name for each in self.state.containers.values()):
                raise NameInUse(f"The container name {name} is already in use")
            container.name = name

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        async with self._step("set autostart"):
            self._find(container_id).autostart = enabled

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        async with self._step("limit"):
            container = self._find(container_id)
            container.cpu, container.memory = cpu, memory

    async def image(self, reference: str) -> Image | None:
        return self._images.get(reference)

    async def images(self) -> list[ListedImage]:
        return [
            ListedImage(
                id=image.id,
                tags=image.tags,
                digests=() if image.digest is None else (image.digest,),
            )
            for image in {each.id: each for each in self._images.values()}.values()
        ]

    async def image_events(self, reference: str, *, since: float) -> list[ImageEvent]:
        events = self.image_history.get(reference, [])
        return [event for event in events if event.time >= since]

    async def remove_image(self, reference: str) -> None:
        async with self._step("remove image"):
            image = self._images.get(reference)
            if image is None:
                raise ImageUnavailable(f"No such image: {reference}")
            if any(each.image_id == image.id for each in self.state.containers.values()):
                raise EngineConflict(f"image {reference} is being used by a container")
            self._images = {
                name: each for name, each in self._images.items() if each.id != image.id
            }

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        progress(PullProgress(done_bytes=0, total_bytes=1))
        raise ImageUnavailable(f"{reference} cannot be pulled")

    async def find_manifest(self, reference: str) -> None:
        raise ImageUnavailable(f"{reference} cannot be pulled")

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        return self.state.volumes.get(name)

    async def volumes(self, *, label: str | None = None) -> Mapping[str, Mapping[str, str]]:
        found = self.state.volumes.items()
        return {name: dict(labels) for name, labels in found if has_label(labels, label)}

    async def volume_users(self, name: str) -> list[Container]:
        containers = self.state.containers.values()
        return [listed(each) for each in containers if name in each.volumes.values()]

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        async with self._step("create volume"):
            self.state.volumes.setdefault(name, dict(labels))

    async def remove_volume(self, name: str) -> None:
        async with self._step("remove volume"):
            if await self.volume_users(name):
                raise EngineConflict(f"volume {name} is in use")
            self.state.volumes.pop(name, None)

    async def network(self, name: str) -> Network | None:
        return self.networks.get(name)

    async def create_network(self, wanted: Network) -> None:
        async with self._step("create network"):
            if wanted.name in self.networks:
                raise EngineConflict(f"network with name {wanted.name} already exists")
            self.networks[wanted.name] = wanted

    async def connect(self, container_id: str, network: str) -> None:
        raise EngineConflict(f"{container_id} is connected to {network}")

    async def processes(self, container_id: str) -> list[Process]:
        self._find(container_id)
        return []

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        del priority
        return sampled(self._find(container_id))

    async def disk_usage(self, *, seconds: float) -> DiskUsage:
        assert seconds > 0
        return DiskUsage(
            volumes=dict.fromkeys(self.state.volumes, 2 * MIB),
            containers=dict.fromkeys(self.state.containers, MIB),
        )

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
        del tail, since, follow, until, timestamps
        yield f"a line of {self._find(container_id).name}\n".encode()

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        container = self._find(container_id)
        if not as_root:
            return await self._check(container, seconds)
        async with self._step("execute"):
            if container.state != "running":
                raise EngineConflict(f"container {container_id} is not running")
            assert command == ["chpasswd", "-e"]
            container.shadow = stdin.decode().strip()
        return ExecResult(exit_code=0, output="")

    async def _check(self, container: FakeContainer, seconds: float | None) -> ExecResult:
        self.checked.append(container.id)
        if container.state != "running":
            raise EngineConflict(f"container {container.id} is not running")
        try:
            async with asyncio.timeout(seconds):
                return ExecResult(exit_code=await self.check(container.id), output="")
        except TimeoutError as error:
            raise CommandTimeout("the command does not end") from error

    async def read_file(self, container_id: str, path: str) -> bytes:
        return file_of(self._find(container_id), path)

    async def give(self, container_id: str, paths: Collection[str], user: str) -> bool:
        self._find(container_id)
        return bool(paths) and user == "app"

    async def archive(self, container_id: str, path: str) -> AsyncGenerator[bytes]:
        assert path in self._find(container_id).volumes
        yield packed({".": None})

    async def unpack(self, container_id: str, tar: AsyncIterator[bytes]) -> None:
        async with self._step("unpack"):
            self._find(container_id)
            async for _ in tar:
                pass

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        assert since >= 0
        while True:
            event = await self._happening.get()
            if event is None:
                return
            assert label == "rollcall.app"
            yield event

    def happen(
        self, action: str, container: FakeContainer, *, exit_code: int | None = None
    ) -> None:
        """Tell of something that others did to a container."""
        self._happening.put_nowait(
            ContainerEvent(
                action=action,
                container_id=container.id,
                app=container.labels["rollcall.app"],
                time=time.time(),
                exit_code=exit_code,
            )
        )

    def go_away(self) -> None:
        """End the stream of events, as an engine does that is back at once."""
        self._happening.put_nowait(None)

    async def stopped_at(self, container_id: str) -> float | None:
        return self._find(container_id).stopped_at

    async def current_run(self) -> EngineRun | None:
        return self.run

    async def close(self) -> None:
        """There is nothing to close."""
