"""Ten seconds of `make fuzz`: however requests arrive, the answers are the same."""

import subprocess
import sys

import pytest

SECONDS = 10


@pytest.mark.real
def test_random_requests_are_answered_alike_and_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", str(SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-8000:]}"
