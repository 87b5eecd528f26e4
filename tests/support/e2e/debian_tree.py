"""A tree of any Debian on which a package can be installed, without a network."""

import shutil
import subprocess
from pathlib import Path

from dev.debian import debian_root

CHROOT = """\
tree=$0
ip link set lo up
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
exec chroot "$tree" sh -euc "$1"
"""
PATH = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
ALONE = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private")


def debian_tree(release: str, tree: Path, package: Path) -> Path:
    """Make a tree of a release at a path, with the file of a package as /package.deb."""
    # Unlike shutil, cp copies a device such as /dev/zero as a device.
    root = debian_root(release, "python3", "systemd")
    subprocess.run(["cp", "--archive", root, tree], check=True)
    shutil.copy(package, tree / "package.deb")
    return tree


def run_in(tree: Path, script: str) -> tuple[int, str]:
    """Run a script in a tree, with processes and a loopback of its own; return what it said."""
    done = subprocess.run(
        ["unshare", *ALONE, "sh", "-euc", CHROOT, tree, PATH + script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
