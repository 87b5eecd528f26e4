"""How a run of the tests chooses them, and what it prints of those that fail or are left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.requirements import FAST, is_left_out

pytestmark = pytest.mark.slow

TOP = Path(__file__).parents[2]
NEEDS = {
    "mark": "@pytest.mark.real('no-such-program')\ndef test_it() -> None: ...",
    "call": "def test_it() -> None:\n    pytest.skip('needs no-such-program, which is away')",
    "module": "pytest.skip('needs no-such-program, which is away', allow_module_level=True)",
}
FAILURES = {
    "first": "def test_sum() -> None:\n    assert 1 + 1 == 3, 'the sum is wrong'",
    "second": "@pytest.fixture\ndef part() -> None:\n    raise OSError('no part')\n\n\n"
    "def test_part(part) -> None: ...",
    "third": "def test_last() -> None: ...",
}
RELEASES = {
    "release": "pytestmark = pytest.mark.release('it takes an hour')\n\n\ndef test_a(): ...",
    "mixed": "@pytest.mark.release('it takes an hour')\ndef test_b(): ...\n\n\ndef test_c(): ...",
}


def test_a_group_of_tests_whose_program_is_missing_is_named_once(tmp_path: Path) -> None:
    done = _pytest(tmp_path, NEEDS)
    assert done.returncode == 0, done.stdout
    assert "3 skipped" in done.stdout
    assert "left out (1): needs no-such-program, which is not installed" in done.stdout
    assert "left out (2): needs no-such-program, which is away" in done.stdout


def test_a_missing_program_is_a_failure_where_all_must_run(tmp_path: Path) -> None:
    done = _pytest(tmp_path, NEEDS, ci="true")
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout  # the call; the mark and the module are errors
    assert "2 errors" in done.stdout
    assert "needs no-such-program, which is not installed" in done.stdout


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_failure_is_printed_at_once_and_again_at_the_end(tmp_path: Path, workers: str) -> None:
    done = _pytest(tmp_path, FAILURES, "-p", "xdist", "-v", workers)
    assert done.returncode == 1, done.stdout
    at_once, _, at_end = done.stdout.partition("test_third.py")
    assert "FAILED test_first.py::test_sum (call)" in at_once
    assert "AssertionError: the sum is wrong" in at_once
    assert "FAILED test_second.py::test_part (setup)" in at_once
    assert "OSError: no part" in at_once
    assert "FAILED test_first.py::test_sum - AssertionError: the sum is wrong" in at_end
    assert "ERROR test_second.py::test_part - OSError: no part" in at_end


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ((), 1),
        (("--release",), 3),
        (("test_release.py",), 1),
        (("test_mixed.py::test_b",), 1),
    ],
)
def test_release_tests_run_only_with_the_option_or_by_their_name(
    tmp_path: Path, arguments: tuple[str, ...], passed: int
) -> None:
    done = _pytest(tmp_path, RELEASES, *arguments)
    assert done.returncode == 0, done.stdout
    assert f"{passed} passed" in done.stdout


def test_a_release_mark_needs_its_reason(tmp_path: Path) -> None:
    done = _pytest(tmp_path, {"bare": "@pytest.mark.release\ndef test_a() -> None: ..."})
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "test_bare.py::test_a: write the reason" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status"),
    [((), 1), (("test_third.py",), 0), (("-k", "last"), 0)],
)
def test_a_run_of_all_tests_fails_if_no_daemon_gave_a_documented_answer(
    tmp_path: Path, arguments: tuple[str, ...], status: int
) -> None:
    passing = {"third": FAILURES["third"]}
    done = _pytest(tmp_path, passing, "-o", "testpaths=.", "-p", "xdist", "-n1", *arguments)
    assert done.returncode == status, done.stdout
    assert ("no test got registry GET /nodes 304" in done.stdout) == bool(status)


def _pytest(
    folder: Path, modules: dict[str, str], *arguments: str, ci: str = ""
) -> subprocess.CompletedProcess[str]:
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n\n{text}\n")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command = [*options, "-rfE", "--continue-on-collection-errors", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *command],
        env=os.environ | {"CI": ci, "PYTHONPATH": str(TOP), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "statement",
    [
        "pytestmark = pytest.mark.slow",
        'pytestmark = pytest.mark.real("chromium-headless-shell")',
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
