"""Facts about this host that do not change while it runs: its name, system and hardware."""

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

from agent.engine.models import MIB


def system_hostname(name: str | None = None, *, hosts: Path = Path("/etc/hosts")) -> str:
    """Return the system's hostname, fully qualified if the file ``hosts`` lists it so.

    DNS is not asked. A host that boots before its resolver would get another name, and its key and
    certificate are valid for one name only.
    """
    name = name or socket.gethostname()
    return name if "." in name else _qualified(name, hosts)


def _qualified(name: str, hosts: Path) -> str:
    try:
        lines = hosts.read_text("utf-8", "replace").split("\n")
    except OSError:
        return name
    names = (line.partition("#")[0].split()[1:] for line in lines)
    same = (each for each in names if name in each)
    return next((one for each in same for one in each if one.startswith(f"{name}.")), name)


def host_facts() -> Mapping[str, str]:
    """Return the ``host.*`` key-values: system, kernel, architecture, cores and memory in MiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host.os": _os_name(),
        "host.kernel": platform.release(),
        "host.arch": platform.machine(),
        "host.cpus": str(os.cpu_count() or 1),
        "host.memory_mib": str(memory // MIB),
    }


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, UnicodeDecodeError):
        return platform.system()
