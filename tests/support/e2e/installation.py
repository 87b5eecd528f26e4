"""What ``make install`` lays out, and what pip installs without an index."""

import fcntl
import os
import subprocess
from pathlib import Path

from deploy.deb.wheels import PIP, pinned
from dev.processes import with_network
from tests.support.e2e.packages import download, machine_architecture

TOP = Path(__file__).parents[3]
WHEELS = TOP / "var" / "wheels"
LOCK = TOP / "requirements-build.txt"


def install(folder: Path) -> None:
    """Lay out what gets installed in a folder, for an operator whose files nobody else may read."""
    command = ["make", "-C", str(TOP), "install", f"DESTDIR={folder}"]
    subprocess.run(command, env={**os.environ, **offline_pip()}, check=True, umask=0o077)


def offline_pip() -> dict[str, str]:
    """Return the variables by which pip installs from folders; download what they lack.

    To read the pages of an index for each library is most of the processor time of pip.
    """
    architecture = machine_architecture()
    download(architecture)
    folders = [WHEELS / architecture, _download_builder()]
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": " ".join(map(str, folders)),
        "PIP_NO_INDEX": "1",
        "PIP_NO_COMPILE": "1",
    }


def _download_builder() -> Path:
    """Return a folder with the wheels of what builds the project."""
    folder = WHEELS / "build"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = {"==".join(each.name.split("-")[:2]) for each in folder.glob("*.whl")}
        if not present >= {*pinned(LOCK)}:
            command = [*PIP, "download", "--no-deps", "--require-hashes", "--dest", str(folder)]
            subprocess.run(with_network([*command, "--requirement", str(LOCK)]), check=True)
    return folder
