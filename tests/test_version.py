"""The version of a build, by what the tree is that it is built from."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pytest
from packaging.version import Version

from deploy.deb.package import debian_version
from deploy.version import TOP, Commit, commit, version
from tests.support.e2e.packages import COMMITTED_AT, archived, commit_all, git
from tests.support.requirements import NEEDS_ROOT
from tests.support.run.release import some_of

NOBODY = 65534
# What an installer calls of the project's build backend.
METADATA = """
import sys
from setuptools import build_meta
print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))
"""
PACKAGES = re.compile(r"^packages = \[[^]]*\]$", re.MULTILINE)  # they are beside the point
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a copy of what a build needs for the version, without git."""
    return plain_tree(tmp_path / "plain")


def plain_tree(top: Path, section: str = "unreleased") -> Path:
    """Make a tree without git, whose changelog has this word in its first heading."""
    (top / "deploy").mkdir(parents=True)
    for name in (
        *("MANIFEST.in", "LICENSE", ".gitattributes"),
        *("deploy/__init__.py", "deploy/version.py"),
    ):
        copy(TOP / name, top / name)
    project, found = PACKAGES.subn("packages = []", (TOP / "pyproject.toml").read_text())
    assert found
    (top / "pyproject.toml").write_text(project)
    (top / "deploy/commit.txt").write_text("$Format:%ct %H$\n")
    write_heading(top, section)
    return top


def write_heading(top: Path, section: str) -> None:
    earlier = "## 0.1.0 (2020-01-01)\n"
    (top / "CHANGELOG.md").write_text(f"# Changelog\n\n## 0.2.0 ({section})\n\n{earlier}")


def built(top: Path, *, path: str | None = None) -> str:
    """Return the version in the metadata that a build of the tree makes."""
    folder = top.with_name(f"{top.name}-metadata")
    folder.mkdir()
    environment = os.environ if path is None else {**os.environ, "PATH": path}
    command = [sys.executable, "-c", METADATA, str(folder)]
    done = subprocess.run(
        command, cwd=top, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (metadata,) = folder.glob("*.dist-info/METADATA")
    (line,) = [each for each in metadata.read_text().splitlines() if each.startswith("Version: ")]
    return line.removeprefix("Version: ")


def of_commit(name: str) -> str:
    return f"0.2.0.dev{COMMITTED_AT}+{name[:12]}"


@pytest.mark.slow
def test_a_build_without_git_and_without_an_archive_has_no_time(plain: Path) -> None:
    assert built(plain) == built_again(plain) == "0.2.0.dev0"


def built_again(top: Path) -> str:
    """Return what the module says, without a build."""
    command = [sys.executable, "deploy/version.py"]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.real("git")
def test_a_build_of_a_clone_has_the_time_of_the_commit_in_utc_and_its_name(plain: Path) -> None:
    name = commit_all(plain)

    assert built(plain) == built_again(plain) == of_commit(name)


@pytest.mark.real("git", "tar")
def test_a_build_of_an_archive_has_the_version_of_its_commit_without_git(
    plain: Path, tmp_path: Path
) -> None:
    name = commit_all(plain)

    tree = archived(plain, tmp_path / "archive")

    assert built(tree, path="/nowhere") == of_commit(name)


@pytest.mark.real("git", "tar")
def test_an_archive_within_another_repository_keeps_its_own_commit(
    plain: Path, tmp_path: Path
) -> None:
    name = commit_all(plain)
    outer = plain_tree(tmp_path / "outer")
    (outer / "other").touch()
    commit_all(outer)

    assert version(archived(plain, outer / "archive")) == of_commit(name)


@pytest.mark.real("git")
def test_a_copy_within_another_repository_does_not_take_the_commit_of_that_one(
    tmp_path: Path,
) -> None:
    outer = plain_tree(tmp_path / "outer")
    commit_all(outer)

    assert version(plain_tree(outer / "inner")) == "0.2.0.dev0"


@pytest.mark.real("git", "tar")
def test_a_build_of_a_release_has_the_version_alone(tmp_path: Path) -> None:
    clone = plain_tree(tmp_path / "clone", "2027-01-31")
    assert version(clone) == "0.2.0"
    commit_all(clone)

    assert built(clone) == "0.2.0"
    assert version(archived(clone, tmp_path / "archive")) == "0.2.0"

    write_heading(clone, "unreleased")  # not committed: the tree is what is built
    assert version(clone).startswith(f"0.2.0.dev{COMMITTED_AT}+")


@pytest.mark.real("git", "tar")
def test_a_wheel_of_an_sdist_has_the_version_of_the_sdist(plain: Path, tmp_path: Path) -> None:
    name = commit_all(plain)
    command = [sys.executable, "-c", SDIST, str(tmp_path)]
    subprocess.run(command, cwd=plain, capture_output=True, check=True)
    file = tmp_path / f"rollcalld-{of_commit(name)}.tar.gz"

    subprocess.run(["tar", "--extract", "--file", file, "--directory", tmp_path], check=True)
    tree = tmp_path / file.name.removesuffix(".tar.gz")
    assert (tree / "LICENSE").read_bytes() == (TOP / "LICENSE").read_bytes()
    assert built(tree, path="/nowhere") == of_commit(name)


def in_worktree(clone: Path) -> Path:
    git(clone, "worktree", "add", "--quiet", "--detach", "../tree")
    return clone.parent / "tree"


def shallow(clone: Path) -> Path:
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "Another")
    git(clone, "clone", "--quiet", "--depth", "1", f"file://{clone}", "../shallow")
    return clone.parent / "shallow"


def of_another_user(clone: Path) -> Path:
    for path in (clone, *clone.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    return clone


@pytest.mark.real("git")
@pytest.mark.parametrize("changed", [in_worktree, shallow])
def test_a_clone_of_any_kind_has_the_version_of_its_commit(
    plain: Path, changed: Callable[[Path], Path]
) -> None:
    commit_all(plain)

    tree = changed(plain)

    assert version(tree) == of_commit(git(tree, "rev-parse", "HEAD").strip())


@pytest.mark.real("git")
@NEEDS_ROOT
def test_root_gets_the_version_of_a_clone_of_another_user(plain: Path) -> None:
    name = commit_all(plain)

    assert version(of_another_user(plain)) == of_commit(name)


@pytest.mark.real("git")
def test_a_repository_without_a_commit_has_no_time(plain: Path) -> None:
    git(plain, "init", "--quiet")

    assert version(plain) == "0.2.0.dev0"


@pytest.mark.real("git", "make", "tar")
@pytest.mark.parametrize(
    "is_archive", some_of([False, True], True, reason="a second environment of the same version")
)
def test_make_run_installs_the_version_of_the_commit_that_it_runs(
    plain: Path, tmp_path: Path, *, is_archive: bool
) -> None:
    for name in ("Makefile", "dev/shell/venv.sh"):
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        copy(TOP / name, plain / name)
    (plain / ".gitignore").write_text("/.venv/\n__pycache__/\n")
    name = commit_all(plain)
    tree = archived(plain, tmp_path / "archive") if is_archive else plain
    environment_with(tree / ".venv", "pip", "setuptools*", "_distutils_hack")

    make_version(tree)
    assert installed(tree) == of_commit(name)
    before = files_of(tree)
    git(plain, "commit", "--quiet", "--allow-empty", "--message", "Another")
    if is_archive:
        copy(archived(plain, tmp_path / "next") / "deploy/commit.txt", tree / "deploy")
    make_version(tree)
    assert installed(tree) == of_commit(git(plain, "rev-parse", "HEAD"))
    assert files_of(tree) != before
    before = files_of(tree)
    make_version(tree)
    assert files_of(tree) == before


def environment_with(venv: Path, *patterns: str) -> None:
    """Make an environment that has some libraries of this one, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    for pattern in patterns:
        for each in Path(sysconfig.get_path("purelib")).glob(pattern):
            (site / each.name).symlink_to(each)
    (venv / "bin/pip").symlink_to("python")
    (venv / "installed-run").touch()


def make_version(top: Path) -> None:
    """Run the part of ``make run`` that is about the version."""
    command = ["make", "-C", str(top), "--assume-old=.venv/installed-run", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def installed(top: Path) -> str:
    code = "from importlib.metadata import version; print(version('rollcalld'))"
    command = [str(top / ".venv/bin/python"), "-Ic", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def files_of(top: Path) -> dict[Path, int]:
    """Return when each file of the installation was written."""
    return {each: each.stat().st_mtime_ns for each in top.glob(".venv/lib/*/*/rollcalld-*/*")}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (f"{'8d29d061ac89':0<40}", "8d29d061ac89"),
        (f"{'01234567890123a':0<40}", "01234567890123a"),
        (f"{'01234567890a':0<40}", "01234567890a"),
    ],
)
def test_both_forms_of_a_version_show_the_same_beginning_of_the_name(
    plain: Path, name: str, shown: str
) -> None:
    (plain / "deploy/commit.txt").write_text(f"1700000000 {name}\n")

    assert commit(plain) == Commit(1700000000, name)
    assert version(plain) == str(Version(version(plain))) == f"0.2.0.dev{COMMITTED_AT}+{shown}"
    assert debian_version(version(plain)) == f"0.2.0~dev{COMMITTED_AT}.{shown}-1"


@pytest.mark.parametrize("section", ["soon", "2027-1-31", ""])
def test_a_changelog_that_does_not_begin_with_a_version_is_an_error(
    plain: Path, section: str
) -> None:
    write_heading(plain, section)

    with pytest.raises(ValueError, match=r"CHANGELOG\.md: the first section is not headed '## X"):
        version(plain)
