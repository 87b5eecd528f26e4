"""The responses of the Docker API as structs, with the fields that the agent reads."""

from datetime import datetime
from typing import Any

import msgspec

NEVER = "0001-01-01T00:00:00Z"


class ApiObject(msgspec.Struct, rename="pascal", gc=False):
    """A JSON object of the engine, with its style of field names."""


class Port(ApiObject):
    """A port of a container, and that of the host while it is published."""

    public_port: int = 0
    type: str = "tcp"
    address: str = msgspec.field(name="IP", default="")


class Mount(ApiObject):
    """What is mounted in a container; only a volume has a name."""

    destination: str
    type: str = ""
    name: str = ""


class CheckResult(ApiObject):
    """What one check has found."""

    exit_code: int = 0
    output: str = ""


class Health(ApiObject):
    """What the check of a container's image has found."""

    status: str = ""
    log: list[CheckResult] | None = None


class HealthCheck(ApiObject):
    """The check of a container's image. Times are in nanoseconds; 0 is the engine's default."""

    test: list[str] | None = None
    interval: int = 0
    timeout: int = 0
    retries: int = 0
    start_period: int = 0


class State(ApiObject):
    """The state of a container."""

    status: str
    exit_code: int
    started_at: str
    finished_at: str
    oom_killed: bool = msgspec.field(name="OOMKilled")
    error: str = ""
    health: Health | None = None


class Config(ApiObject):
    """The configuration of a container or an image."""

    image: str = ""
    user: str = ""
    labels: dict[str, str] | None = None
    env: list[str] | None = None
    exposed_ports: dict[str, Any] | None = None
    volumes: dict[str, Any] | None = None
    healthcheck: HealthCheck | None = None


class Binding(ApiObject):
    """A port of the host that leads into a container."""

    host_port: str = ""
    address: str = msgspec.field(name="HostIp", default="")


class RestartPolicy(ApiObject):
    """When the engine starts a container by itself."""

    name: str = ""


class HostConfig(ApiObject):
    """The host's part of a container's configuration."""

    cpu_quota: int = 0
    memory: int = 0
    network_mode: str = "default"
    restart_policy: RestartPolicy = msgspec.field(default_factory=RestartPolicy)


class NetworkSettings(ApiObject):
    """The network settings of a container."""

    ports: dict[str, list[Binding] | None] | None = None
    networks: dict[str, Any] | None = None


class Listed(ApiObject):
    """An entry of the list of containers."""

    id: str
    image: str
    state: str
    image_id: str = msgspec.field(name="ImageID")
    status: str = ""
    names: list[str] | None = None
    labels: dict[str, str] | None = None
    ports: list[Port] | None = None
    host_config: HostConfig = msgspec.field(default_factory=HostConfig)
    mounts: list[Mount] | None = None
    network_settings: NetworkSettings = msgspec.field(default_factory=NetworkSettings)


class Inspected(ApiObject):
    """The inspection of a container."""

    id: str
    name: str
    image: str
    created: str
    restart_count: int
    state: State
    config: Config
    host_config: HostConfig
    network_settings: NetworkSettings
    mounts: list[Mount] | None = None


class Info(ApiObject):
    """The engine's information on itself and its host."""

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
    experimental_build: bool = False
    architecture: str = ""


class Image(ApiObject):
    """The inspection of an image."""

    id: str
    created: str = NEVER
    architecture: str = ""
    repo_digests: list[str] | None = None
    repo_tags: list[str] | None = None
    config: msgspec.Raw = msgspec.Raw(b"null")


class ListedImage(ApiObject):
    """An entry of the list of images."""

    id: str
    repo_digests: list[str] | None = None
    repo_tags: list[str] | None = None


class VolumeUsage(ApiObject):
    """How large a volume is, -1 if that was not measured."""

    size: int = -1


class Volume(ApiObject):
    """A volume; its size is only in what is on the engine's disk."""

    name: str = ""
    labels: dict[str, str] | None = None
    usage_data: VolumeUsage | None = None


class VolumeList(ApiObject):
    """A list of volumes."""

    volumes: list[Volume] | None = None


class MeasuredContainer(ApiObject):
    """A container, and how much it has written."""

    id: str
    size_rw: int = 0


class DiskUsage(ApiObject):
    """What is on the engine's disk."""

    volumes: list[Volume] | None = None
    containers: list[MeasuredContainer] | None = None


class Top(ApiObject):
    """The rows of the host's ps."""

    processes: list[list[str]] | None


class Actor(ApiObject):
    """The object of an event."""

    id: str = msgspec.field(name="ID")
    attributes: dict[str, str]


class Event(ApiObject):
    """A line of the stream of events."""

    action: str
    actor: Actor
    time_nano: int = msgspec.field(name="timeNano", default=0)


class Subnet(ApiObject):
    """A range of addresses."""

    subnet: str = ""


class Ipam(ApiObject):
    """The addresses of a network."""

    config: list[Subnet] | None = None


class Network(ApiObject):
    """The inspection of a network."""

    name: str
    driver: str
    options: dict[str, str] | None = None
    ipam: Ipam = msgspec.field(name="IPAM", default_factory=Ipam)
    enable_ipv6: bool = msgspec.field(name="EnableIPv6", default=False)


class NetworkRun(ApiObject):
    """When a network was made."""

    id: str
    created: datetime


class Memory(msgspec.Struct, frozen=True):
    """Bytes of memory; of cgroup v1 or v2."""

    usage: int | None = None
    limit: int | None = None
    stats: dict[str, int] | None = None


class CpuUsage(msgspec.Struct):
    """Nanoseconds of CPU."""

    total_usage: int


class Cpu(msgspec.Struct):
    """CPU time used by a container and by the whole host."""

    cpu_usage: CpuUsage
    system_cpu_usage: int = 0
    online_cpus: int = 0


class Traffic(msgspec.Struct):
    """Bytes received and sent by one network interface of a container."""

    rx_bytes: int
    tx_bytes: int


class BlkioEntry(msgspec.Struct):
    """Bytes read from, or written to, one device."""

    op: str
    value: int


class BlkioStats(msgspec.Struct, frozen=True):
    """Input and output of a container on block devices."""

    io_service_bytes_recursive: list[BlkioEntry] | None = None


class Pids(msgspec.Struct, frozen=True):
    """The number of processes."""

    current: int = 0


class Read(msgspec.Struct):
    """The time of a sample."""

    read: str = NEVER


class Stats(msgspec.Struct):
    """A sample of a container's resource usage."""

    cpu_stats: Cpu
    memory_stats: Memory = Memory()
    networks: dict[str, Traffic] | None = None
    blkio_stats: BlkioStats = BlkioStats()
    pids_stats: Pids = Pids()


class PullDetail(msgspec.Struct):
    """The progress of one layer of a pull, in bytes."""

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


class ErrorResponse(msgspec.Struct):
    """The body of a response with a status of an error."""

    message: str


class Version(ApiObject):
    """The version of the engine, and the versions of its API."""

    version: str
    api_version: str
    min_api_version: str = msgspec.field(name="MinAPIVersion", default="1.12")
