"""A test whose program is missing is skipped by name, but fails where every test must run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TOP = Path(__file__).parents[2]
MODULES = {
    "mark": "@pytest.mark.real('no-such-program')\ndef test_it() -> None: ...",
    "call": "def test_it() -> None:\n    pytest.skip('no-such-program')",
    "module": "pytest.skip('no-such-program', allow_module_level=True)",
}


def test_a_missing_program_is_a_skip_with_its_name_on_a_laptop(tmp_path: Path) -> None:
    done = _pytest(tmp_path, must_run="")
    assert done.returncode == 0, done.stdout
    assert "3 skipped" in done.stdout
    assert "needs no-such-program, which is not installed" in done.stdout


def test_a_missing_program_is_a_failure_where_all_must_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path, must_run="true")
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout  # the call; the mark and the module are errors
    assert "2 errors" in done.stdout
    assert "needs no-such-program, which is not installed" in done.stdout


def _pytest(folder: Path, *, must_run: str) -> subprocess.CompletedProcess[str]:
    for name, text in MODULES.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n\n{text}\n")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-ra",
            "--continue-on-collection-errors",
            folder,
        ],
        env=os.environ
        | {"CI": must_run, "PYTHONPATH": str(TOP), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
