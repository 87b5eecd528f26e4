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
        is_example: apps can be tried, but not with the image of the example.

    """

    why: str
    command: str = ""
    after: str = ""
    is_startable: bool = False
    is_example: bool = False


def missing(url: str) -> Missing | None:
    """Return what is missing to run apps at the engine with this URL; None if nothing is."""
    return _missing_engine(url) or _missing_busybox()


def install(*packages: str) -> str:
    """Return the command that installs packages of Debian; empty on other systems, or for none."""
    if engine.program("apt-get") is None or not packages:
        return ""
    return _as_root("apt-get update", f"apt-get install -y {' '.join(packages)}")


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
    busybox = _missing_packages()
    if engine.program("dockerd") is None:
        command = install("docker.io", *busybox)
        if not command:
            return Missing(f"no Docker Engine is installed ({ENGINE_PAGE})")
        return _for_user("no Docker Engine is installed", command)
    why, packages = "Docker Engine is installed, but does not run", busybox
    if engine.program("iptables") is None:
        why += ", and iptables is missing, which it needs"
        packages = ["iptables", *busybox]
    command = " && ".join(filter(None, [install(*packages), _start()]))
    return _for_user(why, command, is_startable=True)


def _missing_packages() -> list[str]:
    """Return the packages that the image of the example lacks."""
    return [] if find_static_busybox() else ["busybox-static"]


def _for_user(why: str, command: str, *, is_startable: bool = False) -> Missing:
    """Return what is missing, with what lets an ordinary user use the engine at once."""
    user = user_name()
    if os.geteuid() == 0 or _is_member(user):
        return Missing(why, command, is_startable=is_startable)
    command = f"{command} && {_as_root(f'usermod -aG docker {user}')}"
    return Missing(why, command, _after_joining("docker"), is_startable)


def _is_member(user: str) -> bool:
    with suppress(KeyError):
        return user in grp.getgrnam("docker").gr_mem
    return False


def _after_joining(group: str) -> str:
    return (
        f"Members of the group {group} are as powerful as root on this machine.\n"
        f"Log in again after that, {AGAIN}."
    )


def _start() -> str:
    """Return the command that starts the engine; empty for root, for whom we start it."""
    if os.geteuid() == 0:
        return ""
    if engine.SYSTEMD.is_dir():
        return _as_root("systemctl start docker")
    # The service of Debian demands control groups that containers often lack.
    return _as_root("sh -c 'dockerd >/var/log/dockerd.log 2>&1 &'")


def _not_permitted(path: Path) -> Missing:
    """Return what a user without access to the socket lacks."""
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
        join = _as_root(f"usermod -aG {group.gr_name} {user}")
        command = " && ".join(filter(None, [install(*_missing_packages()), join]))
        return Missing(why, command, _after_joining(group.gr_name))
    return Missing(why)


def _missing_busybox() -> Missing | None:
    if find_static_busybox() is not None:
        return None
    why = "the image of the example lacks a static busybox"
    return Missing(why, install("busybox-static"), is_example=True)
