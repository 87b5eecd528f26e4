"""What the tests of the operator's command share."""

from pathlib import Path

import pytest

from tests.support.cli.process import CommandLine


@pytest.fixture
def rollcall(tmp_path: Path) -> CommandLine:
    """Return the command, without any context."""
    return CommandLine(tmp_path)
