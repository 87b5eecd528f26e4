"""`make test`: runs all tests, with an engine of their own if none runs."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from dev import engine

LOG = Path("var/dockerd-test.log")


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; return its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    LOG.parent.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(engine.running(engine.url(os.environ), log=LOG))
        except engine.EngineError as error:
            print(f"rollcall: {error}; tests that need one are skipped", flush=True)
        environment = os.environ | {"PATH": engine.system_path(os.environ)}
        return subprocess.call([sys.executable, "-m", "pytest", *arguments], env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
