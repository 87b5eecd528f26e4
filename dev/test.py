"""`make test`: every behaviour once, as many tests at a time as this machine can keep apart.

``--release``, which is an option of this suite, also runs the tests that `make test-all` adds.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import pytest

from dev import engine
from dev.debian import SSH_SERVER, SYSTEMD_HOST, DebianError, debian_tree

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
    argument ``-n0``: they use the engine that is there, else start one. Without an engine they run
    beside one another.
    """
    os.environ["PATH"] = engine.system_path(os.environ)
    os.environ.setdefault("GOGC", GO_GARBAGE_PERCENT)
    if not can_isolate():
        workers = [] if has_engine() else _plain_workers()
        return pytest.main(["--durations=25", *workers, *arguments])
    if set(arguments) <= {"--release"}:
        prepare()
    # Hundreds of databases and packages that wait for one disk would take a third of the time.
    with TemporaryDirectory(prefix="rollcall-test-", dir=MEMORY) as folder:
        os.environ["TMPDIR"] = folder
        options = [*_isolated_workers(), f"--basetemp={folder}/pytest"]
        return pytest.main(["--durations=25", *options, *arguments])


def prepare() -> None:
    """Download what tests would wait for, and print how long it took.

    What cannot be downloaded is printed; the tests that need it are left out, or fail. Meanwhile
    pytest compiles the tests, so that not each worker does.
    """
    began = time.monotonic()
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
    with subprocess.Popen(collect, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        _download()
    print(f"rollcall: downloads took {time.monotonic() - began:.0f} s", flush=True)


def _download() -> None:
    try:
        for packages in (SSH_SERVER, SYSTEMD_HOST):
            debian_tree(*packages)
        subprocess.run(["make", "--silent", "debian-deb", "var/wheels/amd64"], check=True)
    except (DebianError, OSError, subprocess.CalledProcessError) as error:
        print(f"rollcall: not all was downloaded: {error}", file=sys.stderr)


def _isolated_workers() -> list[str]:
    """Return pytest's options for four workers more than processors: many tests wait.

    More of them would find the processors busy, and tests that wait would look in vain more often.
    ``ROLLCALL_WORKERS`` is another number of workers.
    """
    python = shlex.join([*ISOLATED, sys.executable])
    return [f"--tx={_workers()}*popen//python={python}", *_DISTRIBUTION]


def _plain_workers() -> list[str]:
    return [f"--tx={_workers()}*popen", *_DISTRIBUTION]


_DISTRIBUTION = ("--dist=loadfile", "--no-loadscope-reorder")


def _workers() -> int:
    default = min(len(os.sched_getaffinity(0)) + 4, MOST_WORKERS)
    return int(os.environ.get("ROLLCALL_WORKERS", default))


def can_isolate() -> bool:
    """Return whether commands can run isolated here, each with an engine of its own."""
    if os.geteuid() != 0 or "DOCKER_HOST" in os.environ or shutil.which("dockerd") is None:
        return False
    tried = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def has_engine() -> bool:
    """Return whether tests will find an engine, or start one."""
    can_start = os.geteuid() == 0 and engine.program("dockerd") is not None
    return can_start or engine.responds(engine.url(os.environ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
