"""What keeps `make run` from apps, and the command that helps."""

import grp
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dev import engine
from dev.images import find_static_busybox
from dev.processes import user_name

ENGINE_PAGE = "https://docs.docker.com/engine/install/"
AGAIN = "then start `make run` again"


class Missing(NamedTuple):
    """Why apps cannot be tried here.

    Attributes:
        why: the reason.
        command: the shell command that helps, empty if there is none.
        after: what is to be done then; empty if `make run` notices by itself.
        is_startable: an engine is installed here, and does not run.

    """

    why: str
    command: str = ""
    after: str = ""
    is_startable: bool = False


def missing(url: str) -> Missing | None:
    """Return what is missing to run apps at the engine with this URL; None if nothing is."""
    return _missing_engine(url) or _missing_busybox()


def install(package: str) -> str:
    """Return the command that installs a package of Debian; empty on other systems."""
    if engine.program("apt-get") is None:
        return ""
    return _as_root("apt-get update", f"apt-get install -y {package}")


def needs_root(command: str) -> bool:
    """Return whether a command works only if root types it."""
    return command != "" and os.geteuid() != 0 and not command.startswith("sudo ")


def _as_root(*commands: str) -> str:
    sudo = "sudo " if os.geteuid() != 0 and shutil.which("sudo") else ""
    return " && ".join(f"{sudo}{command}" for command in commands)


def _missing_engine(url: str) -> Missing | None:
    try:
        answers = engine.ping(url)
    except PermissionError:
        return _not_permitted(engine.socket_path(url))
    except (FileNotFoundError, ConnectionRefusedError):
        return _no_engine(url)
    except OSError:
        answers = False
    return None if answers else Missing(f"what listens at {url} does not answer as a Docker Engine")


def _no_engine(url: str) -> Missing:
    if not engine.is_default(url):
        return Missing(f"no Docker Engine runs at {url}")
    if engine.program("dockerd") is None:
        command = install("docker.io")
        see = "" if command else f" ({ENGINE_PAGE})"
        return Missing(f"no Docker Engine is installed{see}", command)
    why, start = "Docker Engine is installed, but does not run", _start()
    if engine.program("iptables") is not None:
        return Missing(why, start, is_startable=True)
    commands = filter(None, [install("iptables"), start])
    why = f"{why}, and iptables is missing, which it needs"
    return Missing(why, " && ".join(commands), is_startable=True)


def _start() -> str:
    """Return the command that starts the engine; empty for root, for whom we start it."""
    if os.geteuid() == 0:
        return ""
    if engine.SYSTEMD.is_dir():
        return _as_root("systemctl start docker")
    # The service of Debian demands control groups that containers often lack.
    return _as_root("sh -c 'dockerd >/var/log/dockerd.log 2>&1 &'")


def _not_permitted(path: Path) -> Missing:
    """Return what a user lacks who may not use the socket."""
    user = user_name()
    why = f"{user} is not allowed to use {path}"
    with suppress(OSError, KeyError):
        found = path.stat()
        group = grp.getgrgid(found.st_gid)
        if found.st_mode & stat.S_IWGRP == 0 or group.gr_gid == 0:
            return Missing(f"{why}: only root is")
        if user in group.gr_mem:
            why += f"; {user} is in the group {group.gr_name}, which takes effect at the next login"
            return Missing(why, after=f"Log in again, {AGAIN}.")
        command = _as_root(f"usermod -aG {group.gr_name} {user}")
        return Missing(why, command, f"Log in again after that, {AGAIN}.")
    return Missing(why)


def _missing_busybox() -> Missing | None:
    if find_static_busybox() is not None:
        return None
    why = "the image for them is made of a static busybox, which is missing"
    return Missing(why, install("busybox-static"))
