"""A minute of `make chaos`: random faults, and no acknowledged change is lost."""

import os
import subprocess
import sys

import pytest

from tests.support.registry.nats.faults import FIRST_IN_CHAOS

SECONDS = 60
# There each kind of fault has to be possible: without root or faketime, some are left out.
MUST_RUN = os.environ.get("CI") == "true"


@pytest.mark.release("each kind of fault happens in a minute or more")
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
    for kind in FIRST_IN_CHAOS:
        name = kind.__name__
        is_left_out = not MUST_RUN and f"no {name}" in done.stdout
        assert f"\n{name}: " in done.stdout or is_left_out, f"no {name}:\n{done.stdout}"
