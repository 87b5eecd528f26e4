"""`make test`: runs all tests, as many at once as this machine can keep apart."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from dev import engine

ISOLATED = ["sh", "dev/shell/isolated.sh"]
MOST_WORKERS = 8


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; return its exit status.

    Tests that use a Docker Engine cannot share it with tests that run beside them: an agent with an
    empty database adopts every app that it finds. So each worker is isolated and starts an engine
    of its own. Where that is not possible, or DOCKER_HOST names an engine, tests run one after the
    other, as with the argument ``-n0``. They use the engine that is there, else start one.
    """
    os.environ["PATH"] = engine.system_path(os.environ)
    options = _isolated_workers() if _can_isolate() else []
    return pytest.main(["--durations=25", *options, *arguments])


def _isolated_workers() -> list[str]:
    """Return pytest's options for two workers for each processor: tests wait half of their time."""
    count = min(2 * len(os.sched_getaffinity(0)), MOST_WORKERS)
    python = shlex.join([*ISOLATED, sys.executable])
    return [f"--tx={count}*popen//python={python}", "--dist=loadfile", "--no-loadscope-reorder"]


def _can_isolate() -> bool:
    if os.geteuid() != 0 or "DOCKER_HOST" in os.environ or shutil.which("dockerd") is None:
        return False
    tried = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False)
    return tried.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
