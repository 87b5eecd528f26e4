"""What is installed is what the tree holds, and nobody else's."""

import hashlib
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from deploy.deb.environment import copy_of_sources
from deploy.deb.wheels import PYTHONS
from deploy.version import version
from tests.support.pages import LINK

TOP = Path(__file__).parents[1]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
FOLDERS = sorted({name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]})
PYTHON = "Programming Language :: Python :: "
LOCKS = sorted(TOP.glob("requirements*.txt"))
# Of the files in the package of npm: dist/uPlot.esm.js, dist/uPlot.min.css and LICENSE.
VENDORED = {
    "uplot-1.6.32.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uplot-1.6.32.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot-1.6.32.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_other_distribution_ships_a_folder_of_our_name(folder: str) -> None:
    assert set(packages_distributions()[folder]) == {"rollcalld"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return a wheel, built from what the Debian package is built from."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_of_sources(TOP, folder / "source")
    # What an installer calls of the project's build backend.
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, folder], cwd=source, check=True, capture_output=True
    )
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def wheel(built: zipfile.ZipFile) -> list[str]:
    """Return the names of the files in a wheel."""
    return built.namelist()


@pytest.mark.slow
def test_the_wheel_holds_each_file_that_the_daemons_read(wheel: list[str]) -> None:
    in_tree = {
        str(path.relative_to(TOP))
        for folder in FOLDERS
        for kind in ("*.py", "*.yml", "*.css", "*.html", "*.js", "*.svg", "*.LICENSE", "shells/*")
        for path in (TOP / folder).rglob(kind)
    }
    assert {"agent/swagger.yml", "registry/swagger.yml"} <= in_tree
    assert {"config/agent.yml", "config/registry.yml"} <= in_tree
    assert {"web/common/style.css", "web/registry/index.html"} <= in_tree
    assert in_tree <= set(wheel)


@pytest.mark.slow
def test_the_wheel_says_all_that_an_index_of_packages_shows(built: zipfile.ZipFile) -> None:
    folder = f"rollcalld-{version()}.dist-info"
    metadata = Metadata.from_email(built.read(f"{folder}/METADATA"), validate=True)

    vendored = [f"web/vendor/{path.name}" for path in (TOP / "web/vendor").glob("*.LICENSE")]
    assert metadata.license_expression == "Apache-2.0 AND MIT"
    assert metadata.license_files == ["LICENSE", *vendored]
    for name in metadata.license_files:
        assert built.read(f"{folder}/licenses/{name}") == (TOP / name).read_bytes()
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description is not None
    assert "Never run `pip install rollcall`" in metadata.description
    assert not LINK.findall(metadata.description), "the index has no other page of this tree"
    assert metadata.classifiers


def test_the_classifiers_name_each_python_that_a_package_is_for() -> None:
    named = PROJECT["project"]["classifiers"]

    found = [each.removeprefix(PYTHON) for each in named if each.startswith(PYTHON)]
    assert found == ["3", "3 :: Only", *PYTHONS]


@pytest.mark.slow
def test_the_wheel_holds_nothing_but_the_daemons(wheel: list[str]) -> None:
    folders = {name.partition("/")[0] for name in wheel}
    assert {name for name in folders if not name.endswith(".dist-info")} == set(FOLDERS)


def test_the_code_of_others_is_what_they_published() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (TOP / "web/vendor").iterdir()
    }
    assert found == VENDORED


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_each_package_with_its_hash_and_without_an_address(lock: Path) -> None:
    text = lock.read_text()
    lines = text.replace("\\\n", "").splitlines()
    entries = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
