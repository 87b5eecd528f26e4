"""What cannot be printed is an error of one line."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("command", ["man", "--help", "completion bash"])
def test_output_that_cannot_be_written_is_told_in_one_line(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "cli.main", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert ran.returncode == 1
    assert ran.stderr == "rollcall: the output cannot be written: No space left on device\n"
