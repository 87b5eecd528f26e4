"""Converts the engine's responses and events to the agent's models."""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from agent.engine import responses
from agent.engine.logins import (
    came_from_registry,
    digest_of,
    full_reference,
    is_image_id,
    names_server,
)
from agent.engine.models import (
    MIB,
    Container,
    ContainerEvent,
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
    Sample,
)
from agent.engine.responses import NEVER
from config.address import MAX_PORT

CPU_PERIOD = 100_000  # microseconds; CpuQuota is what a container may use of them
# Only the last column can contain blanks. The arguments of a process may be megabytes long, so a
# line is truncated.
# The host knows a container's users by their ids alone.
PS = "-eo pid,ppid,uid,pcpu,rss,etimes,args --cols 4096"
COLUMNS = 7
# The kernel's names of CPUs that have another one in images.
CPUS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}
# At the end of the status that a list has of a container: "Up 5 minutes (health: starting)".
HEALTH_IN_STATUS = re.compile(r"\((?:health: )?(starting|healthy|unhealthy)\)\Z")
HEALTH: Mapping[str, Health] = {
    "starting": "starting",
    "healthy": "healthy",
    "unhealthy": "unhealthy",
}
NANOSECONDS = 10**9
CHECK_SECONDS, CHECK_RETRIES = 30, 3  # the engine's defaults
# Whoever builds an image may give its check years.
MOST_CHECK_SECONDS = 3600.0
# The options of a bridge network.
DRIVER = "bridge"
INTERFACE = "com.docker.network.bridge.name"
REACHABLE = "com.docker.network.bridge.enable_icc"
MASQUERADE = "com.docker.network.bridge.enable_ip_masquerade"
MTU = "com.docker.network.driver.mtu"
EXPOSED_PORT = re.compile(r"([0-9]{1,5})/([a-z]+)")


_LIST = msgspec.json.Decoder(list[responses.Listed])
_INSPECTED = msgspec.json.Decoder(responses.Inspected)
_INFO = msgspec.json.Decoder(responses.Info)
_IMAGES = msgspec.json.Decoder(list[responses.ListedImage])
_IMAGE = msgspec.json.Decoder(responses.Image)
_CONFIG = msgspec.json.Decoder(responses.Config | None)
_VOLUME = msgspec.json.Decoder(responses.Volume)
_VOLUMES = msgspec.json.Decoder(responses.VolumeList)
_DISK_USAGE = msgspec.json.Decoder(responses.DiskUsage)
_TOP = msgspec.json.Decoder(responses.Top)
_NETWORK = msgspec.json.Decoder(responses.Network)
_RUN = msgspec.json.Decoder(responses.NetworkRun)
_EVENT = msgspec.json.Decoder(responses.Event)
_READ = msgspec.json.Decoder(responses.Read)
_STATS = msgspec.json.Decoder(responses.Stats)


def info(answer: bytes) -> EngineInfo:
    """Return the engine's information on itself and its host."""
    entry = _INFO.decode(answer)
    # The engine accepts all of these limits, and ignores those that its kernel does not support.
    limits = {
        "cpu": entry.cpu_cfs_period and entry.cpu_cfs_quota,
        "memory": entry.memory_limit,
        "pids": entry.pids_limit,
        "swap": entry.swap_limit,
    }
    return EngineInfo(
        version=entry.server_version,
        cpus=entry.cpus,
        memory=entry.mem_total // MIB,
        data_root=entry.docker_root_dir,
        init=bool(entry.init_binary),
        experimental=entry.experimental_build,
        architecture=CPUS.get(entry.architecture, entry.architecture),
        unsupported_limits=tuple(name for name, possible in limits.items() if not possible),
    )


def containers(answer: bytes) -> list[Container]:
    """Return the containers of a list."""
    return [_container(entry) for entry in _LIST.decode(answer)]


def _container(entry: responses.Listed) -> Container:
    names = [name.removeprefix("/") for name in entry.names or ()]
    return Container(
        id=entry.id,
        name=next((name for name in names if "/" not in name), ""),
        image=entry.image,
        image_id=entry.image_id,
        state=entry.state,
        labels=entry.labels or {},
        ports=_addresses(
            (port.public_port, port.address)
            for port in entry.ports or ()
            if port.public_port and port.type == "tcp"
        ),
        health=_health(entry.state, _health_in(entry.status)),
        network=entry.host_config.network_mode,
        networks=_connected(entry.network_settings.networks),
        volumes=_mounted(entry.mounts),
    )


def _connected(networks: Mapping[str, Any] | None) -> frozenset[str] | None:
    return None if networks is None else frozenset(networks)


def _mounted(mounts: Iterable[responses.Mount] | None) -> dict[str, str]:
    """Return the names of the volumes among the mounts, by path."""
    return {each.destination: each.name for each in mounts or () if each.type == "volume"}


def _health_in(status: str) -> str:
    found = HEALTH_IN_STATUS.search(status)
    return found[1] if found else ""


def _health(state: str, found: str) -> Health | None:
    # An inspect still reports the health from before the container was paused or ended.
    return HEALTH.get(found) if state == "running" else None


def _health_seconds(check: responses.HealthCheck | None) -> float | None:
    if check is None or not check.test or check.test[0] == "NONE":
        return None
    interval = check.interval / NANOSECONDS or CHECK_SECONDS
    timeout = check.timeout / NANOSECONDS or CHECK_SECONDS
    retries = check.retries or CHECK_RETRIES
    return min(
        check.start_period / NANOSECONDS + retries * (interval + timeout), MOST_CHECK_SECONDS
    )


def inspected(answer: bytes) -> InspectedContainer:
    """Return the container that was inspected."""
    entry = _INSPECTED.decode(answer)
    state, config, host = entry.state, entry.config, entry.host_config
    return InspectedContainer(
        id=entry.id,
        name=entry.name.removeprefix("/"),
        image=config.image,
        image_id=entry.image,
        state=state.status,
        labels=config.labels or {},
        ports=_published(entry.network_settings.ports or {}),
        started_at=_time(state.started_at),
        finished_at=_time(state.finished_at),
        exit_code=_exit_code(state),
        restarts=entry.restart_count,
        oom_killed=state.oom_killed,
        error=state.error,
        env=_environment(config.env),
        cpu=host.cpu_quota * 100 // CPU_PERIOD,
        memory=host.memory // MIB,
        created_at=_time(entry.created),
        health=_health(state.status, state.health.status if state.health else ""),
        health_seconds=_health_seconds(config.healthcheck),
        last_check=_last_check(state),
        network=host.network_mode,
        networks=_connected(entry.network_settings.networks),
        volumes=_mounted(entry.mounts),
        autostart=host.restart_policy.name not in ("", "no"),
    )


def _last_check(state: responses.State) -> ExecResult | None:
    results = state.health.log if state.health and state.status == "running" else None
    if not results:
        return None
    return ExecResult(exit_code=results[-1].exit_code, output=results[-1].output)


def _exit_code(state: responses.State) -> int | None:
    # The engine reports 0 for a container that runs.
    unknown = state.status in ("running", "paused") or _time(state.finished_at) is None
    return None if unknown else state.exit_code


def _addresses(published: Iterable[tuple[int, str]]) -> dict[int, str]:
    # The engine lists a port that is bound to all addresses once for IPv4 and once for IPv6.
    return dict(sorted(published, key=lambda each: ":" not in each[1]))


def _published(bindings: Mapping[str, list[responses.Binding] | None]) -> dict[int, str]:
    # A port of the container may be published on several ports of the host.
    return _addresses(
        (int(outside.host_port), outside.address)
        for leading_in in bindings.values()
        for outside in leading_in or ()
        if outside.host_port.isdecimal()
    )


def _time(text: str) -> str | None:
    return None if text in ("", NEVER) else text


def _environment(pairs: list[str] | None) -> dict[str, str]:
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs or ())}


def image(answer: bytes, reference: str) -> Image:
    """Return the image with this reference that was inspected."""
    entry = _IMAGE.decode(answer)
    config = _CONFIG.decode(entry.config) or responses.Config()
    return Image(
        id=entry.id,
        labels=config.labels or {},
        tcp_ports=_exposed(config.exposed_ports or (), "tcp"),
        udp_ports=_exposed(config.exposed_ports or (), "udp"),
        exposes=len(config.exposed_ports or ()),
        env=_environment(config.env),
        config_bytes=len(entry.config),
        local=not came_from_registry(reference, entry.repo_digests or ()),
        volumes=frozenset(filter(None, map(_volume_path, config.volumes or ()))),
        user=config.user,
        created_at=_time(entry.created),
        architecture=entry.architecture,
        digest=digest_of(reference, entry.repo_digests or ()),
        digests=_named(entry.repo_digests),
        tags=frozenset(_named(entry.repo_tags)),
        # The containerd image store names an image by the digest of its manifest, which it also
        # gives to images that were built here; the older one, by the digest of its configuration.
        may_be_local=not names_server(reference)
        and any(digest.partition("@")[2] == entry.id for digest in entry.repo_digests or ()),
    )


def images(answer: bytes) -> list[ListedImage]:
    """Return the images of a list."""
    return [
        ListedImage(
            id=entry.id, tags=frozenset(_named(entry.repo_tags)), digests=_named(entry.repo_digests)
        )
        for entry in _IMAGES.decode(answer)
    ]


def _named(names: list[str] | None) -> tuple[str, ...]:
    # Engines before 23.0 write "<none>:<none>" and "<none>@<none>" where there is no name.
    return tuple(name for name in names or () if not name.startswith("<none>"))


def disk_usage(answer: bytes) -> DiskUsage:
    """Return the sizes of volumes, and of what containers wrote."""
    entry = _DISK_USAGE.decode(answer)
    return DiskUsage(
        volumes={
            each.name: each.usage_data.size
            for each in entry.volumes or ()
            if each.usage_data is not None and each.usage_data.size >= 0
        },
        containers={each.id: each.size_rw for each in entry.containers or ()},
    )


def _exposed(ports: Iterable[str], protocol: str) -> frozenset[int]:
    """Return the exposed ports of a protocol; a range, which an image may hold, is ignored."""
    split = (EXPOSED_PORT.fullmatch(each) for each in ports)
    found = {int(each[1]) for each in split if each is not None and each[2] == protocol}
    return frozenset(number for number in found if 1 <= number <= MAX_PORT)


def _volume_path(declared: str) -> str | None:
    # The engine itself mounts an image's volume at the normal form of its path. It rejects `/`.
    if not declared.startswith("/"):
        return declared
    path = posixpath.normpath(f"/{declared.lstrip('/')}")
    return path if path != "/" else None


def volume_labels(answer: bytes) -> dict[str, str]:
    """Return the labels of a volume."""
    return _VOLUME.decode(answer).labels or {}


def volumes(answer: bytes) -> dict[str, dict[str, str]]:
    """Return the labels of volumes by the name of each."""
    return {each.name: each.labels or {} for each in _VOLUMES.decode(answer).volumes or ()}


def processes(answer: bytes) -> list[Process]:
    """Return the processes in the rows of the host's ps."""
    rows = _TOP.decode(answer).processes or []
    return [_process(row) for row in rows if len(row) >= COLUMNS]


def _process(row: list[str]) -> Process:
    pid, ppid, user, cpu, resident, elapsed, *command = row
    return Process(
        pid=int(pid),
        ppid=int(ppid),
        user=user,
        cpu_percent=float(cpu),
        memory_bytes=int(resident) * 1024,
        elapsed_seconds=int(elapsed),
        command=" ".join(command),
    )


def sample(answer: bytes) -> Sample | None:
    """Return a sample, None for a container that does not run.

    Figures of memory are None if the kernel does not count the memory of containers.
    """
    # The sample of a container that does not run has no time.
    if _READ.decode(answer).read == NEVER:
        return None
    entry = _STATS.decode(answer)
    memory, networks = entry.memory_stats, (entry.networks or {}).values()
    blocks = entry.blkio_stats.io_service_bytes_recursive or []
    return Sample(
        cpu_ns=entry.cpu_stats.cpu_usage.total_usage,
        system_ns=entry.cpu_stats.system_cpu_usage,
        cpus=entry.cpu_stats.online_cpus or 1,
        memory_bytes=_used(memory),
        memory_limit_bytes=memory.limit,
        network_rx_bytes=sum(each.rx_bytes for each in networks),
        network_tx_bytes=sum(each.tx_bytes for each in networks),
        block_read_bytes=_blocks(blocks, "read"),
        block_write_bytes=_blocks(blocks, "write"),
        pids=entry.pids_stats.current,
    )


def _used(memory: responses.Memory) -> int | None:
    if memory.usage is None:
        return None
    # Page cache that the kernel can reclaim is not counted. In cgroup v1 its name has a prefix.
    details = memory.stats or {}
    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
    return max(0, memory.usage - cached)


def _blocks(entries: list[responses.BlkioEntry], operation: str) -> int:
    return sum(entry.value for entry in entries if entry.op.lower() == operation)


def engine_run(answer: bytes) -> EngineRun:
    """Return the run of the engine that made a network."""
    entry = _RUN.decode(answer)
    return EngineRun(id=entry.id, began_at=entry.created.timestamp())


def network(answer: bytes) -> Network:
    """Return the network that was inspected."""
    entry = _NETWORK.decode(answer)
    options = entry.options or {}
    return Network(
        name=entry.name,
        interface=options.get(INTERFACE, ""),
        reachable=entry.driver != DRIVER or options.get(REACHABLE, "true") != "false",
        masquerade=options.get(MASQUERADE, "true") != "false",
        mtu=int(options.get(MTU, 0)),
        ipv6=entry.enable_ipv6,
        subnets=tuple(each.subnet for each in entry.ipam.config or () if each.subnet),
    )


def event(line: bytes, label: str) -> ContainerEvent:
    """Return an event of a container; ``label`` is the label that holds the app's name."""
    entry = _EVENT.decode(line)
    action, _, detail = entry.action.partition(": ")
    attributes = entry.actor.attributes
    if action == "kill" and "signal" in attributes:
        detail = f"signal {attributes['signal']}"
    return ContainerEvent(
        action=action,
        container_id=entry.actor.id,
        app=attributes.get(label, ""),
        time=entry.time_nano / 1e9,
        detail=detail or None,
        exit_code=_event_exit_code(attributes) if action == "die" else None,
    )


def _event_exit_code(attributes: Mapping[str, str]) -> int | None:
    text = attributes.get("exitCode", "")
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def stop_time(lines: Iterable[bytes]) -> float | None:
    """Return the Unix time of the last of these events if it is a stop, else None."""
    last = None
    for line in lines:
        last = _EVENT.decode(line)
    return last.time_nano / 1e9 if last is not None and last.action == "stop" else None


def image_events(lines: Iterable[bytes], names: Collection[str]) -> list[ImageEvent]:
    """Return those of these events that are of an image with one of these references or ids.

    The engine names the image of an event by a reference or by its id. To an id it may add a
    reference; to a reference it adds the repository, which other images have in common.
    """
    found = list[ImageEvent]()
    for line in lines:
        event = _EVENT.decode(line)
        named = {event.actor.id}
        if is_image_id(event.actor.id):
            named.add(event.actor.attributes.get("name", ""))
        if any(each in names or _full(each) in names for each in named):
            found.append(ImageEvent(action=event.action, time=event.time_nano / NANOSECONDS))
    return found


def _full(name: str) -> str | None:
    """Return the full reference, None for an id, or for a name that is no reference."""
    return None if not name or is_image_id(name) else full_reference(name)
