"""The packages, built once for all workers of a run."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.deb.wheels import ARCHITECTURES
from tests.support.e2e.packages import (
    Packages,
    build_package,
    download_wheels,
    machine_architecture,
    next_release,
)
from tests.support.requirements import need


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Return a package of this tree and one of the next release, for this machine's kind."""
    need("dpkg-deb")
    with _shared_folder(tmp_path_factory, "packages") as (folder, is_new):
        if is_new:
            architecture = machine_architecture()
            wheels = download_wheels(architecture, folder)
            build_package(architecture, wheels, output=folder / "present")
            source = next_release(folder)
            build_package(architecture, wheels, source=source, output=folder / "following")
        (present,) = folder.glob("present/*.deb")
        (following,) = folder.glob("following/*.deb")
    return Packages(present, following)


@pytest.fixture(scope="session")
def foreign_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package of this tree for the kind of machine that this one is not."""
    need("dpkg-deb")
    with _shared_folder(tmp_path_factory, "foreign") as (folder, is_new):
        if is_new:
            (architecture,) = ARCHITECTURES.keys() - {machine_architecture()}
            wheels = download_wheels(architecture, folder)
            build_package(architecture, wheels, output=folder)
        (package,) = folder.glob("*.deb")
    return package


@contextmanager
def _shared_folder(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """Yield a folder that all workers of a run have, locked, and whether it is new."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_new = not folder.exists()
        folder.mkdir(exist_ok=True)
        yield folder, is_new
