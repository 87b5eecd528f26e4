"""What the system knows of this host, and what does not change while it runs."""

import os
import platform
import socket
from collections.abc import Mapping

MIB = 1024 * 1024


def system_hostname() -> str:
    """Give the system's own name, fully qualified where the resolver knows it."""
    name = socket.gethostname()
    qualified = socket.getfqdn(name)
    return qualified if qualified.partition(".")[0] == name.partition(".")[0] else name


def host_facts() -> Mapping[str, str]:
    """Give the ``host.*`` entries: system, kernel, architecture, cores and memory in MiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "host.os": _system(),
        "host.kernel": platform.release(),
        "host.arch": platform.machine(),
        "host.cpus": str(os.cpu_count() or 1),
        "host.memory_mib": str(memory // MIB),
    }


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
