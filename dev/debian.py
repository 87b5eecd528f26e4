"""Small Debian systems, made once by mmdebstrap and kept."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from dev.processes import with_network

RELEASE = "bookworm"
SSH_SERVER = ("openssh-server",)
# The last two are for whoever manages the host from afar.
SYSTEMD_HOST = ("systemd-sysv", "dbus", "python3", "procps", "openssh-server", "python3-apt")
# Else the package usrmerge is installed to merge /usr, with Perl.
HOOKS = ("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",)
# A mirror may lag behind, or this machine's clock may be ahead.
UPDATES = ("--aptopt=Acquire::Check-Valid-Until false",)
REMOVALS = ('--customize-hook=rm -r "$1/usr/share/doc" "$1/usr/share/locale"',)
APT_FOLDER = Path("/etc/apt")
# The archive itself, in both formats of apt's sources; that of security updates has another name.
MIRROR = re.compile(r"^(?:URIs:|deb)\s(?:.*\s)?(https?://\S+/debian/?)(?:\s|$)", re.MULTILINE)


class DebianError(Exception):
    """The system could not be made; the text holds the end of what mmdebstrap said."""


def cache_folder() -> Path:
    """Return the folder outside of the clone that keeps what is slow to make, and make it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "rollcall"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def debian_tree(*packages: str) -> Path:
    """Return a tar file of a system with these packages."""
    name = f"{_name(RELEASE, packages)}.tar"
    return _made_once(name, lambda tree: _make(tree, RELEASE, packages, form="tar"))


def debian_root(release: str, *packages: str) -> Path:
    """Return the folder of a system with these packages, which may be made the root of others."""
    name = _name(release, packages)
    return _made_once(name, lambda root: _make(root, release, packages, form="directory"))


def _name(release: str, packages: Iterable[str]) -> str:
    return "-".join(["debian", release, *packages])


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    made = cache_folder() / name
    part = made.with_name(f"{name}.part")
    with made.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # runs side by side make it once
        if not made.exists():
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            part.rename(made)
    return made


def _make(target: Path, release: str, packages: Iterable[str], *, form: str) -> None:
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--format={form}"]
    command += [f"--include={','.join(packages)}", *HOOKS, *UPDATES, *REMOVALS]
    command += [release, str(target), *([found] if (found := mirror(APT_FOLDER)) else [])]
    done = subprocess.run(with_network(command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DebianError(f"mmdebstrap failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def mirror(apt_folder: Path) -> str | None:
    """Return the mirror of Debian that apt uses on this machine, None if its sources name none."""
    for name in ("sources.list.d/debian.sources", "sources.list"):
        with suppress(OSError):
            found = MIRROR.search((apt_folder / name).read_text("utf-8"))
            if found:
                return found[1]
    return None
