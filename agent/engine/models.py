"""The models of a container engine: containers, images, volumes, and what they use."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

MIB = 1 << 20
DEFAULT_NETWORK = "bridge"
Health = Literal["starting", "healthy", "unhealthy"]
LONGEST_CHECK_OUTPUT = 512
# A shell and the engine end with these codes where there is no program that they could run.
CANNOT_RUN = frozenset({126, 127})
NO_PROGRAM = re.compile(r"executable file not found|no such file or directory|exec failed")


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """The engine and the host under it. ``memory`` is in MiB, ``data_root`` where its data lies.

    ``architecture`` is its CPU, by the name that images have for it, "" if that is not known.
    ``unsupported_limits`` names what the host's kernel cannot limit: of cpu, memory, pids and swap.
    """

    version: str
    cpus: int
    memory: int
    data_root: str
    init: bool
    unsupported_limits: tuple[str, ...] = ()
    experimental: bool = False
    architecture: str = ""


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """How a command in a container ended, and the beginning of what it wrote.

    The code is -1 where the engine itself reports why it did not run.
    """

    exit_code: int
    output: str

    @property
    def failure(self) -> str | None:
        """Why a check that is this command failed, None if it passed."""
        if self.exit_code == 0:
            return None
        said = " ".join(self.output.split())[:LONGEST_CHECK_OUTPUT]
        return f"exit code {self.exit_code}{f': {said}' * bool(said)}"

    @property
    def cannot_run(self) -> bool:
        """Whether the container has no such program, so that the command always fails."""
        if self.exit_code == -1:
            return NO_PROGRAM.search(self.output) is not None
        return self.exit_code in CANNOT_RUN


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container as a listing shows it.

    ``ports`` are the host's, while they are published, each with its address, an IPv4 one if there
    are several. ``health`` is what the check of its image has found while it runs, None if there is
    no check. ``network`` is that of which it was made, ``default`` for that of the engine;
    ``networks`` are those that it is connected to, None where that is not known. ``volumes`` are
    the names of the volumes that are mounted in it, by path.
    """

    id: str
    name: str
    image: str
    image_id: str
    state: str
    labels: Mapping[str, str]
    ports: Mapping[int, str] = {}
    health: Health | None = None
    network: str = "default"
    networks: frozenset[str] | None = None
    volumes: Mapping[str, str] = {}

    @property
    def own_network(self) -> str:
        """The name of the network of which it was made."""
        return DEFAULT_NETWORK if self.network == "default" else self.network

    @property
    def lost_network(self) -> str | None:
        """The network of which it was made, if somebody has disconnected it from that."""
        if self.networks is None or self.networks & {self.own_network, "none", "host"}:
            return None
        return self.own_network


class InspectedContainer(Container, frozen=True, kw_only=True):
    """A container as only an inspect shows it.

    Times are RFC 3339, None where unknown. ``cpu`` is in percent of a core, ``memory`` in MiB. The
    check of its image has decided on its health ``health_seconds`` after a start, None if there is
    no check; ``last_check`` is its last run, None before the first. With ``autostart``, the engine
    starts it again when it ends, and at its own start.
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
    health_seconds: float | None = None
    autostart: bool = True
    last_check: ExecResult | None = None


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """A container to create.

    ``cpu`` is in percent of a core, ``memory`` and ``log_mib`` in MiB, ``pids`` a number of
    processes. ``ports`` are pairs: of the container, and of the host. ``volumes`` are the names of
    volumes by the path where each is mounted; with ``fill_volumes``, one that is empty gets what
    the image has at that path. An empty ``command`` or ``entrypoint`` is the image's own.
    Without a ``network`` it is in the engine's default one. ``autostart`` is as in
    InspectedContainer.
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
    entrypoint: str = ""
    fill_volumes: bool = True
    network: str | None = None
    autostart: bool = True


@dataclass(frozen=True, kw_only=True)
class Network:
    """A bridge network.

    Attributes:
        name: Its name.
        interface: The host's interface that it is.
        reachable: Its containers reach one another.
        masquerade: They reach the outside under the host's address.
        mtu: The largest packet, in bytes; 0 means the engine's default.
        ipv6: Its containers have IPv6 addresses, too.
        subnets: Their addresses; of those that are missing, the engine chooses.

    """

    name: str
    interface: str
    reachable: bool
    masquerade: bool = True
    mtu: int = 0
    ipv6: bool = False
    subnets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image on this host.

    ``local`` means that it came from no registry. With ``may_be_local`` that is not known: it
    names no registry, and the engine keeps images that were built here as those that were pulled.
    ``exposes`` counts the ports that it exposes, of any protocol. ``config_bytes`` is the size of
    its configuration in the engine's JSON: labels, command, environment, health check and so on.
    ``architecture`` is the CPU that
    it was built for, "" if it does not tell. ``volumes`` are the paths that the image declares as
    VOLUME, in normal form if they are absolute; ``user`` is who runs in it, empty for root.
    ``created_at`` is when it was built, in RFC 3339, None if it does not tell. ``digest`` is how
    the server of its reference knows it, ``NAME@sha256:HEX``, None if it came from no server;
    ``digests`` are those of all servers. ``tags`` are all that lead to it here.
    """

    id: str
    labels: Mapping[str, str]
    tcp_ports: frozenset[int]
    env: Mapping[str, str]
    local: bool
    may_be_local: bool = False
    volumes: frozenset[str] = frozenset()
    udp_ports: frozenset[int] = frozenset()
    exposes: int = 0
    config_bytes: int = 0
    user: str = ""
    created_at: str | None = None
    digest: str | None = None
    digests: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    architecture: str = ""


@dataclass(frozen=True, kw_only=True)
class ListedImage:
    """An image as a listing shows it: the tags that lead to it, and its digests at servers."""

    id: str
    tags: frozenset[str] = frozenset()
    digests: tuple[str, ...] = ()


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
    """A process of a container, with the host's pid of it.

    ``user`` is the id of its user, or the name that the container has for that.
    """

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
class DiskUsage:
    """Bytes on the engine's disk: of volumes by name, and of what containers wrote, by their id.

    What the engine could not measure is left out.
    """

    volumes: Mapping[str, int]
    containers: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ContainerEvent:
    """An event of a container of the agent, at a Unix time.

    ``detail`` is what else the engine reports of it: the health, or the signal of a kill.
    """

    action: str
    container_id: str
    app: str
    time: float
    detail: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImageEvent:
    """An event of an image: the engine's word for what happened, and the Unix time."""

    action: str
    time: float


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """A run of the engine, from one of its starts to its end; ``began_at`` is a Unix time."""

    id: str
    began_at: float
