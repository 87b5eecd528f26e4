"""The engine's answers, as much of each as is read: the JSON of the Docker API, as structs."""

from typing import Any

import msgspec

NEVER = "0001-01-01T00:00:00Z"


class Answer(msgspec.Struct, rename="pascal", gc=False):
    """What the engine answers, whose fields are named in this style by it."""


class Port(Answer):
    """A port of a container, and that of the host while it is published."""

    public_port: int = 0
    type: str = "tcp"


class Listed(Answer):
    """An entry of the list of containers."""

    id: str
    image: str
    state: str
    image_id: str = msgspec.field(name="ImageID")
    names: list[str] | None = None
    labels: dict[str, str] | None = None
    ports: list[Port] | None = None


class State(Answer):
    """How a container is."""

    status: str
    exit_code: int
    started_at: str
    finished_at: str
    oom_killed: bool = msgspec.field(name="OOMKilled")
    error: str = ""


class Config(Answer):
    """What a container or an image was made from."""

    image: str = ""
    labels: dict[str, str] | None = None
    env: list[str] | None = None
    exposed_ports: dict[str, Any] | None = None


class Binding(Answer):
    """A port of the host that leads into a container."""

    host_port: str = ""


class HostConfig(Answer):
    """What the host grants a container."""

    cpu_quota: int = 0
    memory: int = 0


class NetworkSettings(Answer):
    """What leads into a container at present."""

    ports: dict[str, list[Binding] | None] | None = None


class Inspected(Answer):
    """What an inspect tells of a container."""

    id: str
    name: str
    image: str
    created: str
    restart_count: int
    state: State
    config: Config
    host_config: HostConfig
    network_settings: NetworkSettings


class Info(Answer):
    """What the engine tells of itself and its host."""

    server_version: str
    docker_root_dir: str
    mem_total: int
    cpus: int = msgspec.field(name="NCPU")
    init_binary: str = ""
    cpu_cfs_period: bool = False
    cpu_cfs_quota: bool = False
    memory_limit: bool = False
    pids_limit: bool = False
    swap_limit: bool = False


class Image(Answer):
    """What an inspect tells of an image."""

    id: str
    repo_digests: list[str] | None = None
    config: Config | None = None


class Volume(Answer):
    """What an inspect tells of a volume."""

    labels: dict[str, str] | None = None


class Top(Answer):
    """The rows of the host's ps."""

    processes: list[list[str]] | None


class Actor(Answer):
    """What an event happened to."""

    id: str = msgspec.field(name="ID")
    attributes: dict[str, str]


class Event(Answer):
    """A line of the stream of events."""

    action: str
    actor: Actor


class Memory(msgspec.Struct, frozen=True):
    """Bytes of memory; of cgroup v1 or v2."""

    usage: int | None = None
    limit: int | None = None
    stats: dict[str, int] | None = None


class CpuUsage(msgspec.Struct):
    """Nanoseconds of CPU."""

    total_usage: int


class Cpu(msgspec.Struct):
    """What a container and the whole host used of the CPUs."""

    cpu_usage: CpuUsage
    system_cpu_usage: int = 0
    online_cpus: int = 0


class Network(msgspec.Struct):
    """What passed through one of a container's interfaces."""

    rx_bytes: int
    tx_bytes: int


class Block(msgspec.Struct):
    """What was read from, or written to, one device."""

    op: str
    value: int


class Blocks(msgspec.Struct, frozen=True):
    """What passed between a container and devices."""

    io_service_bytes_recursive: list[Block] | None = None


class Pids(msgspec.Struct, frozen=True):
    """How many processes there are."""

    current: int = 0


class Read(msgspec.Struct):
    """When a sample was taken."""

    read: str = NEVER


class Stats(msgspec.Struct):
    """A sample of what a container uses."""

    cpu_stats: Cpu
    memory_stats: Memory = Memory()
    networks: dict[str, Network] | None = None
    blkio_stats: Blocks = Blocks()
    pids_stats: Pids = Pids()


class PullDetail(msgspec.Struct):
    """How far one layer of a pull is, in bytes."""

    current: int = 0
    total: int = 0


class PullError(msgspec.Struct):
    """Why a pull failed."""

    message: str = ""


class PullLine(msgspec.Struct, rename="camel"):
    """A line of the report of a pull."""

    id: str = ""
    status: str = ""
    error: str = ""
    error_detail: PullError | None = None
    progress_detail: PullDetail | None = None


class Refusal(msgspec.Struct):
    """The body of an answer whose status tells of an error."""

    message: str


class Version(Answer):
    """What the engine tells of its own version and of those of its API."""

    version: str
    api_version: str
    min_api_version: str = msgspec.field(name="MinAPIVersion", default="1.12")
