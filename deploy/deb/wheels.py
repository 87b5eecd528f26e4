"""The wheels of a package: what the lock names, for each Python and one architecture."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input")
# Those of Debian 12, Ubuntu 24.04, Debian 13, and what becomes Debian 14.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The newest one stands first. All need a C library that is older than that of Debian 12.
MANYLINUX = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
PINNED = re.compile(r"^([A-Za-z0-9._-]+==[^ \\]+)", re.MULTILINE)
FOR_ALL_PYTHONS = ("-none-any.whl", ".tar.gz")


class BuildError(Exception):
    """The package cannot be built; the text says why."""


@dataclass(frozen=True)
class Architecture:
    """An architecture, as Debian and the kernel call it."""

    debian: str
    machine: str


ARCHITECTURES = {
    each.debian: each
    for each in (Architecture("amd64", "x86_64"), Architecture("arm64", "aarch64"))
}


def platform_options(python: str, architecture: Architecture) -> list[str]:
    """Return pip's options for wheels that run on a Python and an architecture."""
    platforms = [f"--platform={each}_{architecture.machine}" for each in MANYLINUX]
    abis = [f"--abi=cp{python.replace('.', '')}", "--abi=abi3", "--abi=none"]
    return [f"--python-version={python}", "--implementation=cp", *abis, *platforms]


def download(lock: Path, architecture: Architecture, folder: Path) -> None:
    """Download what a lock names for each Python into a folder, and remove all else there.

    Raises:
        BuildError: a file has not the hash that the lock has, or there is none.

    """
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for python in PYTHONS:
        # The first Python has brought what is the same for all. To look it up again takes long.
        pins = without_general(pinned(lock), part)
        with tempfile.NamedTemporaryFile("w", prefix="rollcall-lock-", suffix=".txt") as asked:
            asked.write(_part_of_lock(lock.read_text("utf-8"), pins))
            asked.flush()
            options = platform_options(python, architecture)
            # What has no wheel is downloaded as source, and built offline.
            command = ["download", "--no-deps", "--no-build-isolation", "--require-hashes"]
            run_pip(*command, *options, "--dest", part, "--requirement", asked.name)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _part_of_lock(text: str, pins: Sequence[str]) -> str:
    """Return the lines of a lock about some of its pins."""
    begins = [found.start() for found in PINNED.finditer(text)]
    entries = [text[begin:end] for begin, end in pairwise([*begins, len(text)])]
    return "".join(each for each in entries if each.partition(" ")[0] in pins)


def without_general(pins: Sequence[str], folder: Path) -> list[str]:
    """Return those pins of which a folder has no wheel or source for all Pythons."""
    files = (each.name for each in folder.iterdir() if each.name.endswith(FOR_ALL_PYTHONS))
    there = {_normalised(each.partition("-")[0]) for each in files}
    return [pin for pin in pins if _normalised(pin.partition("==")[0]) not in there]


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def build_wheels(sources: Sequence[Path], folder: Path) -> None:
    """Build a wheel of each source into a folder, offline.

    Raises:
        BuildError: it cannot be built, or is good for one Python alone.

    """
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run_pip_offline("wheel", *options, *sources)
    if odd := [each.name for each in folder.iterdir() if not each.name.endswith("-none-any.whl")]:
        raise BuildError(f"{', '.join(odd)}: not for each Python and architecture")


def pinned(lock: Path) -> list[str]:
    """Return what a lock names, such as ``aiohttp==3.14.5``."""
    return PINNED.findall(lock.read_text("utf-8"))


def run_pip(*arguments: str | Path) -> None:
    """Run pip with the settings of whoever builds, such as the address of an index.

    Raises:
        BuildError: it failed.

    """
    _run_pip(arguments, os.environ)


def run_pip_offline(*arguments: str | Path) -> None:
    """Run pip, which takes files from the folders in the arguments alone.

    The settings of whoever builds may name others, whose files no lock has a hash of.

    Raises:
        BuildError: it failed.

    """
    environment = {name: each for name, each in os.environ.items() if not name.startswith("PIP_")}
    environment["PIP_CONFIG_FILE"] = os.devnull
    _run_pip([*arguments, "--isolated", "--no-index"], environment)


def _run_pip(arguments: Sequence[str | Path], environment: Mapping[str, str]) -> None:
    done = subprocess.run([*PIP, *arguments], env=environment, check=False)
    if done.returncode != 0:
        raise BuildError(f"pip {arguments[0]} failed")
