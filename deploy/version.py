"""The version of a tree: that of a release, or of a build between two releases.

Builds import this module from a clone, an archive of git, an sdist or a plain copy. So it needs
only the standard library, and works without git.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
COMMIT = re.compile(r"(\d+) ([0-9a-f]{40,64})")
# The first section of the changelog, such as "## 0.2.0 (unreleased)" or "## 0.2.0 (2027-01-31)".
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \((unreleased|\d{4}-\d\d-\d\d)\)$", re.MULTILINE)
RECORDED = re.compile(r"^Version: (\S+)$", re.MULTILINE)


class Commit(NamedTuple):
    """A commit: when it was made, in seconds of Unix time, and its whole name."""

    time: int
    name: str


def version(top: Path = TOP) -> str:
    """Return the version of a tree, as Python writes it.

    Raises:
        ValueError: the changelog begins with no section of a version.

    """
    info = top / "PKG-INFO"  # of an sdist, which keeps the version that it was made with
    if info.exists() and (recorded := RECORDED.search(info.read_text("utf-8"))):
        return recorded[1]
    changelog = top / "CHANGELOG.md"
    heading = re.search(r"^## .*$", changelog.read_text("utf-8"), re.MULTILINE)
    section = heading and HEADING.match(heading[0])
    if not section:
        raise ValueError(
            f"{changelog}: the first section is not headed '## X.Y.Z (unreleased)' or"
            " '## X.Y.Z (YYYY-MM-DD)'"
        )
    number, date = section.groups()
    if date != "unreleased":
        return number
    made = commit(top)
    return f"{number}.dev0" if made is None else f"{number}.dev{_suffix(made)}"


def commit(top: Path = TOP) -> Commit | None:
    """Return the commit of a tree, or None where neither git nor its archive has it."""
    archived = top / "deploy" / "commit.txt"  # in which `git archive` writes it (.gitattributes)
    text = archived.read_text("utf-8") if archived.exists() else ""
    found = COMMIT.match(text) or COMMIT.match(_asked_of_git(top / ".git"))
    return Commit(int(found[1]), found[2]) if found else None


def _asked_of_git(folder: Path) -> str:
    """Return the time and the name of the last commit in a repository, or nothing.

    The folder is named to git: otherwise git looks for a repository in all folders above as well,
    and rejects one of another user.
    """
    command = ["git", "--git-dir", str(folder), "rev-list", "--max-count=1", "--timestamp", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _suffix(made: Commit) -> str:
    """Return the time and the name, shortened to twelve characters or, rarely, some more.

    Python takes a name of digits alone for a number, and drops its leading zeros.
    """
    digits = re.match(r"\d*", made.name)
    size = max(12, digits.end() + 1 if digits else 0)
    return f"{datetime.fromtimestamp(made.time, UTC):%Y%m%d%H%M%S}+{made.name[:size]}"


if __name__ == "__main__":
    sys.stdout.write(f"{version()}\n")
