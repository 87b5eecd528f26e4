"""`make test`: runs all tests, as many at once as this machine can keep apart."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import pytest

from dev import engine

ISOLATED = ["sh", "dev/shell/isolated.sh"]
MOST_WORKERS = 8
MEMORY = "/dev/shm"  # a file system in memory, on every Linux
# The engine starts programs of its own for a moment, again and again. By default, each of them
# spends a third of its processor time on garbage.
GO_GARBAGE_PERCENT = "1600"


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; return its exit status.

    Tests that use a Docker Engine cannot share it with tests that run beside them: they stop it, or
    look at all that it has. So each worker is isolated and starts an engine of its own. Where that
    is not possible, or DOCKER_HOST names an engine, tests run one after the other, as with the
    argument ``-n0``. They use the engine that is there, else start one.
    """
    os.environ["PATH"] = engine.system_path(os.environ)
    os.environ.setdefault("GOGC", GO_GARBAGE_PERCENT)
    if not can_isolate():
        return pytest.main(["--durations=25", *arguments])
    # Hundreds of databases and packages that wait for one disk would take a third of the time.
    with TemporaryDirectory(prefix="rollcall-test-", dir=MEMORY) as folder:
        os.environ["TMPDIR"] = folder
        options = [*_isolated_workers(), f"--basetemp={folder}/pytest"]
        return pytest.main(["--durations=25", *options, *arguments])


def _isolated_workers() -> list[str]:
    """Return pytest's options for four workers more than processors: many tests wait.

    More of them would find the processors busy, and tests that wait would look in vain more often.
    ``ROLLCALL_WORKERS`` is another number of workers.
    """
    default = min(len(os.sched_getaffinity(0)) + 4, MOST_WORKERS)
    count = int(os.environ.get("ROLLCALL_WORKERS", default))
    python = shlex.join([*ISOLATED, sys.executable])
    return [f"--tx={count}*popen//python={python}", "--dist=loadfile", "--no-loadscope-reorder"]


def can_isolate() -> bool:
    """Return whether commands can run isolated here, each with an engine of its own."""
    if os.geteuid() != 0 or "DOCKER_HOST" in os.environ or shutil.which("dockerd") is None:
        return False
    tried = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False)
    return tried.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
