"""The terminal that tests type into: what its program wrote last counts, and its end is noticed."""

import os
from pathlib import Path

import pytest

from tests.support.machine.terminal import terminal

LONG = 120.0


def test_words_that_cannot_come_any_more_are_not_waited_for(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo it says this"]
    with (
        terminal(command, folder=tmp_path, environment=os.environ) as screen,
        pytest.raises(AssertionError, match="it ended without 'something else':\nit says this\n"),
    ):
        screen.wait_for("something else", within=LONG)


@pytest.mark.slow
def test_what_a_program_writes_right_before_its_end_is_seen(tmp_path: Path) -> None:
    for number in range(10):
        command = ["sh", "-c", f"yes | head -n 20000; echo last words {number}"]
        with terminal(command, folder=tmp_path, environment=os.environ) as screen:
            assert f"last words {number}\n" in screen.wait_for(f"words {number}", within=LONG)
