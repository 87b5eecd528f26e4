"""Between the engine's JSON and our values, both ways."""

import re
from collections.abc import Mapping
from typing import Any

from agent.engine.protocol import ContainerEvent, ContainerSpec, EngineInfo, Image, Process, Sample

MIB = 1 << 20
PERIOD = 100_000  # microseconds; CpuQuota is what a container may use of them
# Of the engine's default set, what neither a web application nor an SSH server needs: making
# device files, forging packets, and giving files capabilities that outlive the process.
DROPPED = ["MKNOD", "NET_RAW", "SETFCAP"]
# Every column but the last is free of blanks, whatever a process calls itself.
# An app's processes may carry megabytes of arguments each, so a line is cut.
PS = "-eo pid,ppid,user:32,pcpu,rss,etimes,args --cols 4096"
COLUMNS = 7
LAST_PORT = 65_535
NEVER = "0001-01-01T00:00:00Z"
TCP_PORT = re.compile(r"[0-9]{1,5}/tcp")  # an image may also hold a range, which names no one port


def unsupported_limits(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what the engine accepts a limit of and then leaves out, since its kernel has none."""
    limits = {
        "cpu": ("CpuCfsPeriod", "CpuCfsQuota"),
        "memory": ("MemoryLimit",),
        "pids": ("PidsLimit",),
        "swap": ("SwapLimit",),
    }
    return tuple(what for what, has in limits.items() if not all(info.get(each) for each in has))


def environment(pairs: list[str] | None) -> dict[str, str]:
    """Read a list of ``KEY=VALUE``."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs or ())}


def from_info(entry: Mapping[str, Any]) -> EngineInfo:
    """Read what the engine tells of itself and its host."""
    return EngineInfo(
        version=entry["ServerVersion"],
        cpus=entry["NCPU"],
        memory=entry["MemTotal"] // MIB,
        data_root=entry["DockerRootDir"],
        init=bool(entry.get("InitBinary")),
        unsupported_limits=unsupported_limits(entry),
    )


def from_image(entry: Mapping[str, Any], *, pulled: bool) -> Image:
    """Read what an inspect tells of an image; ``pulled`` says whether it came from a registry."""
    config = entry.get("Config") or {}
    exposed = config.get("ExposedPorts") or {}
    return Image(
        id=entry["Id"],
        labels=config.get("Labels") or {},
        tcp_ports=frozenset(filter(None, map(_tcp_port, exposed))),
        env=environment(config.get("Env")),
        local=not pulled,
    )


def _tcp_port(exposed: str) -> int | None:
    number = int(exposed.removesuffix("/tcp")) if TCP_PORT.fullmatch(exposed) else 0
    return number if 1 <= number <= LAST_PORT else None


def host_options(spec: ContainerSpec) -> dict[str, Any]:
    """Give the arguments of docker-py's create_host_config; nothing in them but the plan's."""
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
        "mounts": [{"Type": "volume", "Source": spec.volume, "Target": spec.data}],
    }


def _bindings(spec: ContainerSpec) -> dict[int, list[tuple[str, int]]]:
    # One port of the container may answer on two of the host.
    bindings: dict[int, list[tuple[str, int]]] = {}
    for inside, outside in spec.ports:
        bindings.setdefault(inside, []).append((spec.bind, outside))
    return bindings


def from_top(entry: Mapping[str, Any]) -> list[Process]:
    """Read the rows of the host's ps."""
    return [_process(row) for row in entry["Processes"] or [] if len(row) >= COLUMNS]


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


def from_event(entry: Mapping[str, Any], label: str) -> ContainerEvent:
    """Read an event of a container that has the label."""
    actor = entry["Actor"]
    return ContainerEvent(
        action=entry["Action"], container_id=actor["ID"], app=actor["Attributes"].get(label, "")
    )


def from_stats(entry: Mapping[str, Any]) -> Sample | None:
    """Read a sample; the engine gives one of no time for a container that does not run.

    One that runs may lack figures: a kernel need not count the memory of containers.
    """
    if entry.get("read", NEVER) == NEVER:
        return None
    memory, cpu = entry.get("memory_stats") or {}, entry.get("cpu_stats") or {}
    networks = (entry.get("networks") or {}).values()
    blocks = (entry.get("blkio_stats") or {}).get("io_service_bytes_recursive") or []
    return Sample(
        cpu_ns=cpu["cpu_usage"]["total_usage"],
        system_ns=cpu.get("system_cpu_usage", 0),
        cpus=cpu.get("online_cpus") or 1,
        memory_bytes=_used(memory),
        memory_limit_bytes=memory.get("limit"),
        network_rx_bytes=sum(each["rx_bytes"] for each in networks),
        network_tx_bytes=sum(each["tx_bytes"] for each in networks),
        block_read_bytes=_blocks(blocks, "read"),
        block_write_bytes=_blocks(blocks, "write"),
        pids=(entry.get("pids_stats") or {}).get("current", 0),
    )


def _used(memory: Mapping[str, Any]) -> int | None:
    if "usage" not in memory:
        return None
    # What the kernel would give back at once is no use of memory: total_ in cgroup v1.
    details = memory.get("stats") or {}
    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
    return max(0, int(memory["usage"]) - int(cached))


def _blocks(entries: list[Mapping[str, Any]], operation: str) -> int:
    return sum(entry["value"] for entry in entries if entry["op"].lower() == operation)
