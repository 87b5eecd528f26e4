"""Debian packages of this tree, and of a release that follows it."""

import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from deploy.deb.package import ENVIRONMENT, Release, lay_out
from deploy.deb.wheels import ARCHITECTURES
from dev.processes import with_network

TOP = Path(__file__).parents[3]
VERSION: str = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
NEXT_VERSION = "99.1.0"
# The next release refuses what this one accepts.
ACCEPTED = "heartbeat_seconds: Seconds = 30"
REFUSED = "heartbeat_seconds: Annotated[int, msgspec.Meta(ge=5)] = 30"
EPOCH = "1600000000"
# A folder of modules that the next release does not have.
DROPPED = "certifi/tests"
PROJECT = ("agent", "cli", "config", "httpd", "registry", "web")
SOURCES = (*PROJECT, "docs", "systemd", "deploy/monitoring")
# Tests run from an environment that is there; `make` might make it anew.
PREPARED = ("--no-print-directory", "--assume-old=.venv/installed-run")


@dataclass(frozen=True)
class Packages:
    """Files of packages."""

    present: Path
    following: Path


def machine_architecture() -> str:
    """Return what Debian calls this machine's architecture."""
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def make_deb(architecture: str, output: Path) -> Path:
    """Build a package as ``make deb`` does, and return its file.

    The wheels are downloaded first: where tests have no network, the build has none either.
    """
    wheels = f"var/wheels/{architecture}"
    _make(with_network(["make", "-C", str(TOP), *PREPARED, wheels]))
    _make(["make", "-C", str(TOP), *PREPARED, f"DEB={architecture}", f"DIST={output}", "deb"])
    (package,) = output.glob("*.deb")
    return package


def _make(command: list[str]) -> None:
    command = ["env", f"SOURCE_DATE_EPOCH={EPOCH}", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def follow(present: Path, folder: Path) -> Path:
    """Return a package of the next release, in a folder that is made for it.

    It has the libraries of the present package. Nobody measures it, so it is compressed quickly.
    """
    root, package = folder / "root", folder / f"rollcall_{NEXT_VERSION}.deb"
    source = next_release(folder)
    architecture = ARCHITECTURES[machine_architecture()]
    subprocess.run(["dpkg-deb", "--raw-extract", present, folder / "present"], check=True)
    environment = root / ENVIRONMENT
    environment.parent.mkdir(parents=True)
    (folder / "present" / ENVIRONMENT).rename(environment)
    _replace_project(environment / "lib" / "modules" / "site-packages", source)
    lay_out(root, Release(source, architecture, int(EPOCH)))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, package],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return package


def _replace_project(modules: Path, source: Path) -> None:
    """Put the modules of a tree in the place of those of the present release, and drop some."""
    for name in PROJECT:
        shutil.rmtree(modules / name)
        shutil.copytree(source / name, modules / name)
    shutil.rmtree(modules / DROPPED)
    (present,) = modules.glob("rollcalld-*.dist-info")
    following = present.rename(modules / f"rollcalld-{NEXT_VERSION}.dist-info")
    _replace(following / "METADATA", f"\nVersion: {VERSION}\n", f"\nVersion: {NEXT_VERSION}\n")


def next_release(folder: Path) -> Path:
    """Return a copy of the tree with a higher version, other settings, and fewer accepted."""
    source = folder / "next"
    source.mkdir()
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TOP / name, source / name, ignore=ignored, symlinks=True)
    for name in ("README.md", "CHANGELOG.md", "requirements-nats.txt", "pyproject.toml"):
        shutil.copy(TOP / name, source)
    old, new = (f'\nversion = "{each}"\n' for each in (VERSION, NEXT_VERSION))
    _replace(source / "pyproject.toml", old, new)
    _replace(source / "config" / "agent.py", ACCEPTED, REFUSED)
    with (source / "config" / "agent.yml").open("a") as file:
        file.write("# a setting of the next release\n")
    return source


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text, f"{file}: {old}"
    file.write_text(text.replace(old, new))
