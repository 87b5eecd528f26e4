"""What the rules ask of a container engine: the protocol, its values, its errors."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

MIB = 1 << 20


class EngineError(Exception):
    """The engine did not do what it was asked to: EngineRefused or EngineUnavailable."""


class EngineRefused(EngineError):
    """The engine answered that it did not do it; the text holds its own words."""


class EngineUnavailable(EngineError):
    """The engine cannot be reached, or does not answer in time; what it did is not known."""


class EngineTimeout(EngineUnavailable):
    """The engine is there, but did not answer in time."""


class EngineTooOld(EngineUnavailable):
    """The engine speaks no version of its interface that this agent was tested with."""


class TooManyStreams(EngineUnavailable):
    """As many logs are followed at once as the agent has room for."""


class ObjectNotFound(EngineRefused):
    """The engine knows no such container or volume."""


class ImageUnavailable(EngineRefused):
    """The image is not on this host and cannot be had."""


class ImageNotFound(ImageUnavailable):
    """No server of images knows the image, or it is not for us."""


class ImageServerUnavailable(ImageUnavailable):
    """The server of images cannot be reached, fails, or does not get on with the pull."""


class InvalidParameter(EngineRefused):
    """The engine will not have it as it was asked for, whatever the present state is."""


class EngineConflict(EngineRefused):
    """The present state of the container forbids it."""


class NameInUse(EngineConflict):
    """Another container has that name."""


class HostPortInUse(EngineRefused):
    """A port on the host is held by somebody else."""


class CommandTimeout(EngineRefused):
    """A command in a container does not end, though the engine is there."""


class DiskFull(EngineRefused):
    """The host's disk has no room for this."""


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """The engine and the host under it. ``memory`` is in MiB, ``data_root`` where its data lies.

    ``unsupported_limits`` names what the host's kernel cannot limit: of cpu, memory, pids and swap.
    """

    version: str
    cpus: int
    memory: int
    data_root: str
    init: bool
    unsupported_limits: tuple[str, ...] = ()


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container as a listing shows it. ``ports`` are the host's, while they are published."""

    id: str
    name: str
    image: str
    image_id: str
    state: str
    labels: Mapping[str, str]
    ports: frozenset[int] = frozenset()


class InspectedContainer(Container, frozen=True, kw_only=True):
    """A container as only an inspect shows it.

    Times are RFC 3339, None where unknown. ``cpu`` is in percent of a core, ``memory`` in MiB.
    ``volumes`` are the names of the volumes that are mounted in it, by path.
    """

    started_at: str | None
    finished_at: str | None
    exit_code: int | None
    restarts: int
    oom_killed: bool
    error: str
    env: Mapping[str, str]
    cpu: int
    memory: int
    created_at: str | None = None
    volumes: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """A container to be.

    ``cpu`` is in percent of a core, ``memory`` and ``log_mib`` in MiB, ``pids`` a number of
    processes. ``ports`` are pairs: of the container, and of the host. ``volumes`` are the names of
    volumes by the path where each is mounted. An empty ``command`` is the image's own.
    """

    name: str
    image: str
    labels: Mapping[str, str]
    env: Mapping[str, str]
    ports: tuple[tuple[int, int], ...]
    bind: str
    cpu: int
    memory: int
    pids: int
    log_mib: int
    stop_seconds: int
    volumes: Mapping[str, str]
    init: bool
    no_new_privileges: bool
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image on this host.

    ``local`` means that it came from no registry. With ``may_be_local`` that is not known: it
    names no registry, and the engine keeps images that were built here as those that were pulled.
    ``volumes`` are the paths that the image declares as VOLUME, in normal form.
    """

    id: str
    labels: Mapping[str, str]
    tcp_ports: frozenset[int]
    env: Mapping[str, str]
    local: bool
    may_be_local: bool = False
    volumes: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class PullProgress:
    """How far a pull is, over the layers known so far."""

    done_bytes: int
    total_bytes: int

    @property
    def percent(self) -> int | None:
        """Whole percent, or None while no size is known."""
        return self.done_bytes * 100 // self.total_bytes if self.total_bytes else None


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process of a container, with the pid and user name that the host gives it."""

    pid: int
    ppid: int
    user: str
    cpu_percent: float
    memory_bytes: int
    elapsed_seconds: int
    command: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a container has used up to one moment; CPU times are in nanoseconds.

    Memory is None where the kernel does not count it, ``system_ns`` 0 where it is not known.
    """

    cpu_ns: int
    system_ns: int
    cpus: int
    memory_bytes: int | None
    memory_limit_bytes: int | None
    network_rx_bytes: int
    network_tx_bytes: int
    block_read_bytes: int
    block_write_bytes: int
    pids: int


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """How a command in a container ended, and the beginning of what it wrote."""

    exit_code: int
    output: str


@dataclass(frozen=True, kw_only=True)
class ContainerEvent:
    """An event of a container of the agent."""

    action: str
    container_id: str
    app: str


class Engine(Protocol):
    """A container engine on this host.

    Every method may raise EngineUnavailable; then what was asked for may yet happen, so look again
    before saying that it failed. Those that name a container raise ObjectNotFound when it is gone.
    All containers and volumes carry labels; nothing is listed or changed by anything but their id.

    What a method returns is never older than the call: callers may share an answer, but not one
    that the engine may have given before the call.
    """

    async def info(self) -> EngineInfo:
        """Return the engine's version, its data directory, and the limits of the host."""

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        """List the containers in any state, those with the label (``KEY`` or ``KEY=VALUE``)."""

    async def inspect(self, container_id: str) -> InspectedContainer:
        """Inspect a container."""

    async def create(self, spec: ContainerSpec) -> str:
        """Make a container, which binds no port yet; return its id.

        Raises:
            ImageUnavailable: its image is not on this host.
            NameInUse: another container has its name.

        """

    async def start(self, container_id: str) -> None:
        """Start it.

        Raises:
            HostPortInUse: somebody else holds one of its ports.
            EngineRefused: its program cannot be run; the text says why.

        """

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop it, paused or not, and kill it after ``seconds``; no error if it does not run."""

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""

    async def remove(self, container_id: str) -> None:
        """Remove it, but no volume; wait until it is gone."""

    async def rename(self, container_id: str, name: str) -> None:
        """Rename it; NameInUse."""

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits, in the running container too: percent of a core, and MiB."""

    async def image(self, reference: str) -> Image | None:
        """Return an image of this host, None if it is not there."""

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        """Fetch an image, and call ``progress`` with how far that is.

        Raises:
            ImageNotFound: there is none, or it may not be read.
            ImageServerUnavailable: its server cannot be reached, or does not get on.
            ImageUnavailable: it cannot be had for another reason.
            DiskFull: there is no room for it.

        """

    async def volume_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a volume's labels, None if there is no such volume."""

    async def volumes(self, *, label: str) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of the volumes with the label ``KEY=VALUE``, by the volume's name."""

    async def volume_users(self, name: str) -> list[Container]:
        """List the containers, running or not, that a volume is mounted in."""

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a volume; an existing one of that name stays as it is."""

    async def remove_volume(self, name: str) -> None:
        """Remove a volume and its content; no error if there is none."""

    async def processes(self, container_id: str) -> list[Process]:
        """List its processes; EngineConflict when it is not running."""

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        """Measure it; return None when it is not running.

        With ``priority`` this is for a change, and waits for nobody who only looks.
        """

    def logs(
        self, container_id: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Return what it wrote, and with ``follow`` what it goes on writing; close it to end.

        ``tail`` is a number of lines, ``since`` a Unix time; None means all.
        """

    async def execute(
        self, container_id: str, command: list[str], *, stdin: bytes = b""
    ) -> ExecResult:
        """Run a command in it as root. The command is published by the engine, stdin is not.

        Raises:
            CommandTimeout: it takes longer than the engine itself may take for anything.

        """

    async def read_file(self, container_id: str, path: str) -> bytes:
        """Return the content of a small regular file of it, running or not.

        Raises:
            ObjectNotFound: there is no such file.
            EngineConflict: it is no regular file.
            EngineError: it is larger than 1 MiB.

        """

    def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        """Return what happens to containers with the label; this ends when the engine goes away.

        What happened from the Unix time ``since`` on comes first.
        """

    async def close(self) -> None:
        """Close all streams and reads; later calls fail."""
