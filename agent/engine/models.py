"""Converts the engine's responses to the agent's models, and its container spec to docker-py's."""

import io
import posixpath
import re
import tarfile
from collections.abc import Mapping
from typing import Any

import msgspec

from agent.engine import answers
from agent.engine.answers import NEVER
from agent.engine.logins import came_from_registry, names_server
from agent.engine.protocol import (
    MIB,
    Container,
    ContainerEvent,
    ContainerSpec,
    EngineConflict,
    EngineInfo,
    EngineRefused,
    Image,
    InspectedContainer,
    Process,
    Sample,
)
from config.address import MAX_PORT

PERIOD = 100_000  # microseconds; CpuQuota is what a container may use of them
# Capabilities of the engine's default set that neither web applications nor SSH servers need: to
# make device files, to forge packets, and to give files capabilities.
DROPPED = ["MKNOD", "NET_RAW", "SETFCAP"]
# Only the last column can contain blanks. The arguments of a process may be megabytes long, so a
# line is truncated.
PS = "-eo pid,ppid,user:32,pcpu,rss,etimes,args --cols 4096"
COLUMNS = 7
TCP_PORT = re.compile(r"[0-9]{1,5}/tcp")  # a range of ports, which an image may hold, is ignored


_LIST = msgspec.json.Decoder(list[answers.Listed])
_INSPECTED = msgspec.json.Decoder(answers.Inspected)
_INFO = msgspec.json.Decoder(answers.Info)
_IMAGE = msgspec.json.Decoder(answers.Image)
_VOLUME = msgspec.json.Decoder(answers.Volume)
_VOLUMES = msgspec.json.Decoder(answers.Volumes)
_TOP = msgspec.json.Decoder(answers.Top)
_EVENT = msgspec.json.Decoder(answers.Event)
_READ = msgspec.json.Decoder(answers.Read)
_STATS = msgspec.json.Decoder(answers.Stats)


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
        unsupported_limits=tuple(name for name, possible in limits.items() if not possible),
    )


def containers(answer: bytes) -> list[Container]:
    """Return the containers of a list."""
    return [_container(entry) for entry in _LIST.decode(answer)]


def _container(entry: answers.Listed) -> Container:
    names = [name.removeprefix("/") for name in entry.names or ()]
    return Container(
        id=entry.id,
        name=next((name for name in names if "/" not in name), ""),
        image=entry.image,
        image_id=entry.image_id,
        state=entry.state,
        labels=entry.labels or {},
        ports=frozenset(
            port.public_port
            for port in entry.ports or ()
            if port.public_port and port.type == "tcp"
        ),
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
        cpu=host.cpu_quota * 100 // PERIOD,
        memory=host.memory // MIB,
        created_at=_time(entry.created),
        volumes={
            mount.destination: mount.name for mount in entry.mounts or () if mount.type == "volume"
        },
    )


def _exit_code(state: answers.State) -> int | None:
    # The engine reports 0 for a container that runs.
    unknown = state.status in ("running", "paused") or _time(state.finished_at) is None
    return None if unknown else state.exit_code


def _published(bindings: Mapping[str, list[answers.Binding] | None]) -> frozenset[int]:
    # A port of the container may be published on several ports of the host.
    return frozenset(
        int(outside.host_port)
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
    config = entry.config or answers.Config()
    return Image(
        id=entry.id,
        labels=config.labels or {},
        tcp_ports=frozenset(filter(None, map(_tcp_port, config.exposed_ports or ()))),
        env=_environment(config.env),
        local=not came_from_registry(reference, entry.repo_digests or ()),
        volumes=frozenset(filter(None, map(_volume_path, config.volumes or ()))),
        # The containerd image store names an image by the digest of its manifest, which it also
        # gives to images that were built here; the older one, by the digest of its configuration.
        may_be_local=not names_server(reference)
        and any(digest.partition("@")[2] == entry.id for digest in entry.repo_digests or ()),
    )


def _tcp_port(exposed: str) -> int | None:
    number = int(exposed.removesuffix("/tcp")) if TCP_PORT.fullmatch(exposed) else 0
    return number if 1 <= number <= MAX_PORT else None


def _volume_path(declared: str) -> str | None:
    # The engine itself mounts an image's volume at the normal form of its path.
    path = posixpath.normpath(f"/{declared.lstrip('/')}") if declared.startswith("/") else "/"
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


def _used(memory: answers.Memory) -> int | None:
    if memory.usage is None:
        return None
    # Page cache that the kernel can reclaim is not counted. In cgroup v1 its name has a prefix.
    details = memory.stats or {}
    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
    return max(0, memory.usage - cached)


def _blocks(entries: list[answers.Block], operation: str) -> int:
    return sum(entry.value for entry in entries if entry.op.lower() == operation)


def event(line: bytes, label: str) -> ContainerEvent:
    """Return an event of a container; ``label`` is the label that holds the app's name."""
    entry = _EVENT.decode(line)
    return ContainerEvent(
        action=entry.action,
        container_id=entry.actor.id,
        app=entry.actor.attributes.get(label, ""),
    )


def file_content(archive: bytes, path: str) -> bytes:
    """Return the content of a regular file from the engine's archive, a tar with one member.

    Raises:
        EngineConflict: the member is not a regular file.
        EngineRefused: the archive is malformed, or was truncated.

    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            member = opened.next()
            content = opened.extractfile(member) if member and member.isreg() else None
            if content is not None:
                return content.read()
    except tarfile.TarError as error:
        raise EngineRefused(f"{path} in the container cannot be read") from error
    raise EngineConflict(f"{path} in the container is not a regular file")


def host_options(spec: ContainerSpec) -> dict[str, Any]:
    """Return the arguments of docker-py's create_host_config, from the spec alone."""
    return {
        "port_bindings": _bindings(spec),
        "cpu_period": PERIOD,
        "cpu_quota": spec.cpu * PERIOD // 100,
        "mem_limit": spec.memory * MIB,
        "memswap_limit": spec.memory * MIB,
        "pids_limit": spec.pids,
        "restart_policy": {"Name": "unless-stopped"},
        "init": spec.init,
        "cap_drop": DROPPED,
        "security_opt": ["no-new-privileges:true"] if spec.no_new_privileges else [],
        # Two files of half the size each, so that a rotation keeps the last lines.
        "log_config": {
            "Type": "json-file",
            "Config": {"max-size": f"{spec.log_mib * 512}k", "max-file": "2"},
        },
        "mounts": [
            {"Type": "volume", "Source": volume, "Target": path}
            for path, volume in sorted(spec.volumes.items())
        ],
    }


def _bindings(spec: ContainerSpec) -> dict[int, list[tuple[str, int]]]:
    # A port of the container may be published on several ports of the host.
    bindings: dict[int, list[tuple[str, int]]] = {}
    for inside, outside in spec.ports:
        bindings.setdefault(inside, []).append((spec.bind, outside))
    return bindings
