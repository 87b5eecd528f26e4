"""A minute of `make chaos`: random faults, and no acknowledged change is lost."""

import subprocess
import sys

import pytest

SECONDS = 60


@pytest.mark.long(2)
@pytest.mark.real
def test_random_faults_lose_nothing_and_bring_nothing_back() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--seconds", str(SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-8000:]}"
