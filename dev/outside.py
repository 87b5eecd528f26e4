"""Run the tests from outside of another commit with the programs of this tree.

``python -m dev.outside COMMIT [ARGUMENTS]`` makes a work tree of the commit in `var/outside`, with
an environment of its own. Its tests start this tree's programs, so that a change of structure is
tested by what was written before it. The arguments are those of pytest.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.forks import MODULES, NO_FORKS

TOP = Path(__file__).parents[1]
TREE = TOP / "var/outside"
TESTS = "tests/e2e"
PROGRAM = '#!/bin/sh\nexec {program} "$@"\n'


def main(arguments: Sequence[str]) -> int:
    """Make the work tree, and run its tests; return their exit status."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    commit, *further = arguments
    check_out(commit)
    for name in MODULES:
        use_program(TREE / ".venv/bin" / name, TOP / ".venv/bin" / name)
    command = [f"{TREE}/.venv/bin/python", "-m", "dev.test", *(further or [TESTS])]
    return subprocess.run(
        command, cwd=TREE, env={**os.environ, NO_FORKS: "1"}, check=False
    ).returncode


def check_out(commit: str) -> None:
    """Make the work tree of a commit, with its environment."""
    git = ["git", "-C", str(TOP), "worktree"]
    subprocess.run([*git, "remove", "--force", str(TREE)], check=False, capture_output=True)
    subprocess.run([*git, "prune"], check=True)
    subprocess.run([*git, "add", "--quiet", "--detach", str(TREE), commit], check=True)
    needed = ("debian-test", ".venv/installed-dev", ".venv/installed-nats-oldest")
    subprocess.run(["make", "--silent", *needed], cwd=TREE, check=True)


def use_program(path: Path, program: Path) -> None:
    """Let a console script start another program."""
    path.write_text(PROGRAM.format(program=program))
    path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
