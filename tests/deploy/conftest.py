"""The packages, built once for all workers of a run."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy.deb.wheels import ARCHITECTURES
from tests.support.e2e.packages import (
    Packages,
    follow,
    machine_architecture,
    make_deb,
    make_deb_of_archive,
)
from tests.support.requirements import need


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Return a package of this tree and one of the next release, for this machine's kind."""
    need("dpkg-deb")

    def build(folder: Path) -> None:
        present = make_deb(machine_architecture(), folder)
        with TemporaryDirectory() as work:
            following = follow(present, Path(work))
            shutil.move(following, folder / "following.deb")

    folder = _shared_folder(tmp_path_factory, "packages", build)
    (present,) = folder.glob("rollcall_*.deb")
    return Packages(present, folder / "following.deb")


@pytest.fixture(scope="session")
def foreign_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package for the kind of machine that this one is not, built in an archive of git."""
    need("dpkg-deb")

    def build(folder: Path) -> None:
        (architecture,) = ARCHITECTURES.keys() - {machine_architecture()}
        with TemporaryDirectory() as work:
            make_deb_of_archive(architecture, folder, Path(work))

    (package,) = _shared_folder(tmp_path_factory, "foreign", build).glob("*.deb")
    return package


def _shared_folder(
    factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]
) -> Path:
    """Return a folder that all workers of a run have; the first of them builds what is in it.

    If that fails, the next worker builds it anew.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = factory.mktemp(name)
            build(part)
            part.rename(folder)
    return folder
