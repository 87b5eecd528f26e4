"""Debian packages of this tree and of a build that follows it, and repositories to build in."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.deb.environment import SOURCE_FOLDERS
from deploy.deb.package import ENVIRONMENT, Release, debian_version, lay_out
from deploy.deb.wheels import ARCHITECTURES
from deploy.version import version
from dev.processes import with_network

TOP = Path(__file__).parents[3]
VERSION = version(TOP)
# A later build of what becomes the same release. Only a release itself is followed by another one.
NUMBER, IS_BUILD, _ = VERSION.partition(".dev")
NEXT_VERSION = f"{NUMBER}.dev99991231235959+0123456789ab" if IS_BUILD else "99.1.0"
NEXT_DEBIAN_VERSION = debian_version(NEXT_VERSION)
# The next release rejects what this one accepts.
ACCEPTED = "heartbeat_seconds: Seconds = 30"
REJECTED = "heartbeat_seconds: Annotated[int, msgspec.Meta(ge=5)] = 30"
EPOCH = "1600000000"
# Of commits, in a zone in which it was the next day already.
DATE = "1700000000 +0900"
COMMITTED_AT = "20231114221320"  # in UTC
ARCHIVED_NUMBER = "98.1.0"
ARCHIVED_VERSION = re.compile(rf"{ARCHIVED_NUMBER}~dev{COMMITTED_AT}\.[0-9a-f]{{12,}}-1")
# A folder of modules that the next release does not have.
DROPPED = "passlib/ext"
SOURCES = (*SOURCE_FOLDERS, "docs", "systemd", "deploy/monitoring")
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
    download(architecture)
    environment = f"SOURCE_DATE_EPOCH={EPOCH}"
    _make(["env", environment, *_deb(TOP, architecture, output)])
    (package,) = output.glob("*.deb")
    return package


def make_deb_of_archive(architecture: str, output: Path, work: Path) -> Path:
    """Build a package in an archive of git, where git does not work, and return its file.

    Only the libraries and the environment are those of this tree.
    """
    download(architecture)
    copy = work / "copy"
    ignored = shutil.ignore_patterns(".git", ".venv", "var", "dist", "build", "*_cache", "PKG-INFO")
    shutil.copytree(TOP, copy, ignore=ignored, symlinks=True)
    (copy / "CHANGELOG.md").write_text(f"# Changelog\n\n## {ARCHIVED_NUMBER} (unreleased)\n")
    commit_all(copy)
    source = archived(copy, work / "archive")
    for name in (".venv", "var"):
        (source / name).symlink_to(TOP / name)
    program = work / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    options = ["--unset=SOURCE_DATE_EPOCH", f"PATH={path}"]
    _make(["env", *options, *_deb(source, architecture, output)])
    (package,) = output.glob("*.deb")
    return package


def download(architecture: str) -> None:
    """Download the libraries into ``var/wheels``, unless they are there."""
    with (TOP / "var" / "wheels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _make(with_network(["make", "-C", str(TOP), *PREPARED, f"var/wheels/{architecture}"]))


def _deb(source: Path, architecture: str, output: Path) -> list[str]:
    variables = (f"DEB={architecture}", f"DIST={output}")
    return ["make", "-C", str(source), *PREPARED, *variables, "deb"]


def _make(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def follow(present: Path, folder: Path) -> Path:
    """Return a package of the next release, in a folder that is made for it.

    It has the libraries of the present package. Nobody measures it, so it is not compressed.
    """
    root, package = folder / "root", folder / f"rollcall_{NEXT_DEBIAN_VERSION}.deb"
    source = next_release(folder)
    architecture = ARCHITECTURES[machine_architecture()]
    subprocess.run(["dpkg-deb", "--raw-extract", present, folder / "present"], check=True)
    environment = root / ENVIRONMENT
    environment.parent.mkdir(parents=True)
    (folder / "present" / ENVIRONMENT).rename(environment)
    _replace_project(environment / "lib" / "modules" / "site-packages", source)
    lay_out(root, Release(source, architecture, int(EPOCH)))
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, package],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return package


def _replace_project(modules: Path, source: Path) -> None:
    """Put the modules of a tree in the place of those of the present release, and drop some."""
    for name in SOURCE_FOLDERS:
        shutil.rmtree(modules / name)
        shutil.copytree(source / name, modules / name)
    shutil.rmtree(modules / DROPPED)
    (present,) = modules.glob("rollcalld-*.dist-info")
    following = present.rename(modules / f"rollcalld-{NEXT_VERSION}.dist-info")
    _replace(following / "METADATA", f"\nVersion: {VERSION}\n", f"\nVersion: {NEXT_VERSION}\n")


def next_release(folder: Path) -> Path:
    """Return a copy of the tree with a later version, other settings, and fewer accepted."""
    source = folder / "next"
    source.mkdir()
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TOP / name, source / name, ignore=ignored, symlinks=True)
    for name in ("README.md", "CHANGELOG.md", "requirements-nats.txt", "pyproject.toml"):
        shutil.copy(TOP / name, source)
    (source / "PKG-INFO").write_text(f"Version: {NEXT_VERSION}\n")
    _replace(source / "config" / "agent.py", ACCEPTED, REJECTED)
    with (source / "config" / "agent.yml").open("a") as file:
        file.write("# a setting of the next release\n")
    return source


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text, f"{file}: {old}"
    file.write_text(text.replace(old, new))


def git(top: Path, *arguments: str) -> str:
    """Run git in a repository, with no settings but its own, and return what it printed."""
    environment = {name: each for name, each in os.environ.items() if not name.startswith("GIT_")}
    environment |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_DATE": "1600000000 +0000",
        "GIT_COMMITTER_DATE": DATE,
        **{f"GIT_{role}_NAME": "nobody" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "nobody@example.com" for role in ("AUTHOR", "COMMITTER")},
    }
    command = ["git", "-C", str(top), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit_all(top: Path) -> str:
    """Make a repository of a folder, with one commit of all files, and return its whole name."""
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "--message", "All")
    return git(top, "rev-parse", "HEAD").strip()


def archived(top: Path, folder: Path) -> Path:
    """Unpack an archive of the last commit into a new folder, and return the folder."""
    folder.mkdir()
    file = folder.with_suffix(".tar")
    git(top, "archive", "--output", str(file), "HEAD")
    subprocess.run(["tar", "--extract", "--file", file, "--directory", folder], check=True)
    file.unlink()
    return folder
