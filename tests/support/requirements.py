"""What tests need: programs, root; and which files have nothing for `make test-fast`."""

import os
import re
import shutil
from pathlib import Path

import pytest

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

FAST = "not real and not slow"  # the marks' expression of `make test-fast`

# The statement ends at the first line that is not indented.
_MARKED = re.compile(
    r"^pytestmark = [^\n]*?(?:\n {4}[^\n]*)*?\bpytest\.mark\.(?:real|slow)\b", re.MULTILINE
)


def need(program: str) -> None:
    """Skip the test unless the program is here."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}, which is not installed")


def need_root() -> None:
    """Skip the test unless it runs as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def is_left_out(path: Path) -> bool:
    """Return whether all tests of a file have the mark ``real`` or ``slow``, by its text alone."""
    return path.match("test_*.py") and _MARKED.search(path.read_text()) is not None
