"""`make test-all`: all that is run before a release, whatever fails on the way."""

import shlex
import subprocess
import sys
import time

STEPS = {
    "all tests": "dev.test --release",
    "newer engines": "dev.engines --sample",
    "fuzz": "tests.fuzz --seconds 300",
    "chaos": "tests.chaos --seconds 300",
}


def main() -> int:
    """Run each step, print how long each took, and return 1 if one failed."""
    outcomes = {name: _run(name, command) for name, command in STEPS.items()}
    for name, (status, seconds) in outcomes.items():
        verdict = "passed" if status == 0 else f"FAILED (status {status})"
        print(f"rollcall: {name}: {verdict} after {seconds / 60:.1f} min")
    return int(any(status for status, _ in outcomes.values()))


def _run(name: str, command: str) -> tuple[int, float]:
    print(f"rollcall: {name}", flush=True)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], check=False)
    return done.returncode, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
