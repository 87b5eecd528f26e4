"""What is left out: tests whose program is missing, by name, and what is not for the fast tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import FAST, is_left_out

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


@pytest.mark.parametrize(
    "statement",
    [
        "pytestmark = pytest.mark.slow",
        'pytestmark = pytest.mark.real("chromium")',
        "pytestmark = [pytest.mark.long(1), pytest.mark.real]",
        "pytestmark = [\n    pytest.mark.long(1),\n    pytest.mark.real,\n]",
    ],
)
def test_a_file_with_the_mark_as_a_whole_is_left_out(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "test_pages.py"
    path.write_text(f"import pytest\n\n{statement}\n\n\ndef test_one() -> None: ...\n")
    assert is_left_out(path)


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.real\ndef test_one() -> None: ...\n",
        "pytestmark = [\n    pytest.mark.long(1),\n]\n\n\n@pytest.mark.slow\ndef test_one(): ...\n",
        "pytestmark = pytest.mark.realistic\n",
        "def test_one() -> None:\n    pytestmark = pytest.mark.real\n",
    ],
)
def test_a_file_of_which_only_some_tests_have_the_mark_is_not(tmp_path: Path, text: str) -> None:
    path = tmp_path / "test_pages.py"
    path.write_text(text)
    assert not is_left_out(path)


def test_other_files_have_no_tests(tmp_path: Path) -> None:
    path = tmp_path / "conftest.py"
    path.write_text("pytestmark = pytest.mark.real\n")
    assert not is_left_out(path)


def test_files_are_left_out_where_make_runs_the_fast_tests() -> None:
    assert f'-m "{FAST}"' in (TOP / "Makefile").read_text()
