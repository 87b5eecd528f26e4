"""Small Debian systems, debootstrapped once and kept."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from dev.processes import with_network

RELEASE = "bookworm"
UNNEEDED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")
APT_FOLDER = Path("/etc/apt")
# The archive itself, in both formats of apt's sources; that of security updates has another name.
MIRROR = re.compile(r"^(?:URIs:|deb)\s(?:.*\s)?(https?://\S+/debian/?)(?:\s|$)", re.MULTILINE)


class DebianError(Exception):
    """The system could not be made; the text holds the end of what debootstrap said."""


def cache_folder() -> Path:
    """Return the folder outside of the clone that keeps what is slow to make, and make it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "rollcall"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def debian_tree(*packages: str) -> Path:
    """Return a tar file of a system with these packages."""

    def make(tree: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="rollcall-debootstrap-") as folder:
            root = Path(folder, "root")
            _debootstrap(root, RELEASE, packages)
            command = ["tar", "-C", str(root), "--numeric-owner", "-cf", str(tree), "."]
            subprocess.run(command, check=True)

    return _made_once(f"{_name(RELEASE, packages)}.tar", make)


def debian_root(release: str, *packages: str) -> Path:
    """Return the folder of a system with these packages, which may be made the root of others."""
    return _made_once(_name(release, packages), lambda root: _debootstrap(root, release, packages))


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


def _debootstrap(root: Path, release: str, packages: Iterable[str]) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    command += [release, str(root), *([found] if (found := mirror(APT_FOLDER)) else [])]
    done = subprocess.run(with_network(command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DebianError(f"debootstrap failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for name in UNNEEDED:
        shutil.rmtree(root / name, ignore_errors=True)


def mirror(apt_folder: Path) -> str | None:
    """Return the mirror of Debian that apt uses on this machine, None if its sources name none."""
    for name in ("sources.list.d/debian.sources", "sources.list"):
        with suppress(OSError):
            found = MIRROR.search((apt_folder / name).read_text("utf-8"))
            if found:
                return found[1]
    return None
