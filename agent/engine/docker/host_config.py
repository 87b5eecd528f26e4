"""The host's part of a container's configuration, made from its spec alone."""

from typing import Any

from agent.engine.api.decoding import CPU_PERIOD
from agent.engine.models import MIB, ContainerSpec

# Capabilities of the engine's default set that neither web applications nor SSH servers need: to
# make device files, to forge packets, and to give files capabilities.
DROPPED = ["MKNOD", "NET_RAW", "SETFCAP"]


def host_options(spec: ContainerSpec) -> dict[str, Any]:
    """Return the arguments of docker-py's create_host_config, from the spec alone."""
    return {
        "port_bindings": _bindings(spec),
        "cpu_period": CPU_PERIOD,
        "cpu_quota": spec.cpu * CPU_PERIOD // 100,
        "mem_limit": spec.memory * MIB,
        "memswap_limit": spec.memory * MIB,
        "pids_limit": spec.pids,
        "restart_policy": {"Name": restart_policy(enabled=spec.autostart)},
        "init": spec.init,
        "network_mode": spec.network,
        "cap_drop": DROPPED,
        "security_opt": ["no-new-privileges:true"] if spec.no_new_privileges else [],
        # Two files of half the size each, so that a rotation keeps the last lines.
        "log_config": {
            "Type": "json-file",
            "Config": {"max-size": f"{spec.log_mib * 512}k", "max-file": "2"},
        },
        "mounts": [
            {
                "Type": "volume",
                "Source": volume,
                "Target": path,
                "VolumeOptions": {"NoCopy": not spec.fill_volumes},
            }
            for path, volume in sorted(spec.volumes.items())
        ],
    }


def restart_policy(*, enabled: bool) -> str:
    """Return the engine's name of the policy for a container that it starts by itself, or not."""
    return "unless-stopped" if enabled else "no"


def _bindings(spec: ContainerSpec) -> dict[int, list[tuple[str, int]]]:
    # A port of the container may be published on several ports of the host.
    bindings: dict[int, list[tuple[str, int]]] = {}
    for inside, outside in spec.ports:
        bindings.setdefault(inside, []).append((spec.bind, outside))
    return bindings
