"""The images that tests run apps from, made here because none can be pulled."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from dev.images import build, find_static_busybox
from tests.support.requirements import with_network

HELLO_PAGE = "Hello from the roll call"

RELEASE = "bookworm"
UNNEEDED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")
SSH = """\
FROM {base}
COPY . /
RUN useradd --create-home --shell /bin/bash app && ssh-keygen -A && mkdir -p /run/sshd
LABEL rollcall.ssh_port=22 rollcall.http_port=8000
EXPOSE 22 8000
CMD ["/bin/sh", "-c", "/opt/busybox httpd -p 8000 -h /www && exec /usr/sbin/sshd -D -e"]
"""


def cache_folder() -> Path:
    """Return the folder outside of the clone that keeps what is slow to make, and make it."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "rollcall"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def debian_tree(*packages: str) -> Path:
    """Return a tar file of a small Debian with these packages, debootstrapped once and kept."""
    tree = cache_folder() / "-".join(["debian", RELEASE, *packages])
    tree = tree.with_suffix(".tar")
    with tree.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # runs side by side make it once
        if not tree.exists():
            _debootstrap(tree, packages)
    return tree


def _debootstrap(tree: Path, packages: tuple[str, ...]) -> None:
    include = f"--include={','.join(packages)}"
    with tempfile.TemporaryDirectory(prefix="rollcall-debootstrap-") as folder:
        root = Path(folder, "root")
        command = ["debootstrap", "--variant=minbase", include, RELEASE, str(root)]
        done = subprocess.run(with_network(command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"debootstrap failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        for name in UNNEEDED:
            shutil.rmtree(root / name, ignore_errors=True)
        part = tree.with_suffix(".part")
        subprocess.run(
            ["tar", "-C", str(root), "--numeric-owner", "-cf", str(part), "."], check=True
        )
        part.rename(tree)


@contextmanager
def imported(client: docker.APIClient, tree: Path, tag: str) -> Iterator[str]:
    """Import a tree as an image for as long as this lasts."""
    repository, _, version = tag.partition(":")
    client.import_image_from_file(str(tree), repository=repository, tag=version)
    try:
        yield tag
    finally:
        client.remove_image(tag)


def build_ssh(client: docker.APIClient, tag: str, *, base: str, page: str) -> None:
    """Build an image with the user `app`, chpasswd and an SSH server, and one page on port 8000."""
    busybox = find_static_busybox()
    assert busybox is not None
    files = {
        "opt/busybox": busybox.read_bytes(),
        "www/index.html": page.encode(),
        "etc/ssh/sshd_config.d/tests.conf": b"PasswordAuthentication yes\nUseDNS no\n",
    }
    build(client, tag, SSH.format(base=base), files)
