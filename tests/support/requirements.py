"""What tests need of the machine: programs, root."""

import os
import shutil

import pytest


def need(program: str) -> None:
    """Skip the test unless the program is here."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}, which is not installed")


def need_root() -> None:
    """Skip the test unless it runs as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
