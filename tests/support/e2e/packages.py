"""Debian packages of this tree, and of a release that follows it."""

import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from dev.processes import with_network

TOP = Path(__file__).parents[3]
VERSION: str = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
NEXT_VERSION = "99.1.0"
# The next release refuses what this one accepts.
ACCEPTED = "heartbeat_seconds: Seconds = 30"
REFUSED = "heartbeat_seconds: Annotated[int, msgspec.Meta(ge=5)] = 30"
EPOCH = "1600000000"
SOURCES = (
    *("agent", "cli", "config", "docs", "httpd", "registry", "systemd", "web"),
    "deploy/monitoring",
)


@dataclass(frozen=True)
class Packages:
    """Files of packages."""

    present: Path
    following: Path


def machine_architecture() -> str:
    """Return what Debian calls this machine's architecture."""
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def download_wheels(architecture: str, folder: Path) -> Path:
    """Download the wheels of an architecture into a folder, and return it."""
    wheels = folder / "wheels" / architecture
    wheels.parent.mkdir(parents=True, exist_ok=True)
    command = _step("download", architecture, wheels)
    subprocess.run(with_network(["env", "-C", str(TOP), *command]), check=True)
    return wheels


def build_package(architecture: str, wheels: Path, *, source: Path = TOP, output: Path) -> Path:
    """Build a package, without a network where tests have none, and return its file."""
    command = _step("build", architecture, wheels, "--source", source, "--output", output)
    done = subprocess.run(
        ["env", f"SOURCE_DATE_EPOCH={EPOCH}", *command],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


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


def _step(step: str, architecture: str, wheels: Path, *options: str | Path) -> list[str]:
    arguments = [step, "--architecture", architecture, "--wheels", wheels, *options]
    return [sys.executable, "-m", "deploy.deb", *map(str, arguments)]
