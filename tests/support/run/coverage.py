"""Each answer that a Swagger document announces is given in `make test`, or is an exception here.

A run of all tests fails otherwise. Where a program is missing, tests are skipped, and what is
missing is only printed.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from httpd.access_log import UNMATCHED
from tests.support.run.answers import DAEMONS, FILE, Answer, recorded, unnamed

# A head that is too large is answered before its path is known, so once for all operations.
WITHOUT_PATH = {HTTPStatus.REQUEST_URI_TOO_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE}
# Why no test gets these answers, which are patterns of `Answer.text`.
EXCEPTIONS: Mapping[str, Sequence[str]] = {
    "takes neither a query nor a body, so only malformed HTTP is 400, which has no path": (
        "* GET /healthz 400",
    ),
    "reads the agent's database alone, which a test can make fail for writes only": (
        "agent GET /v1/apps/{}/events 503",
        "agent GET /v1/apps/{}/history 503",
    ),
}
ANSWERS = pytest.StashKey[Path]()
PROBLEMS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the file for the answers of this run; the workers inherit its path."""
    if hasattr(config, "workerinput"):
        return
    folder = TemporaryDirectory(prefix="rollcall-answers-")
    config.add_cleanup(folder.cleanup)
    file = config.stash[ANSWERS] = Path(folder.name, "answers")
    file.touch()
    os.environ[FILE] = str(file)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run of all tests whose answers are not those of the documents."""
    config = session.config
    if ANSWERS not in config.stash or not _is_whole(config, exitstatus):
        return
    found = config.stash[PROBLEMS] = problems(all_documented(), recorded(config.stash[ANSWERS]))
    if found and not _has_skipped(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what is wrong with the answers of a run of all tests."""
    found = config.stash.get(PROBLEMS, [])
    if found:
        result = "not checked, since tests were left out" if _has_skipped(config) else "FAILED"
        terminalreporter.section(f"answers of the Swagger documents: {result}")
        terminalreporter.write_line("\n".join(found))


def _is_whole(config: pytest.Config, exitstatus: int) -> bool:
    """Return whether all tests of `make test` ran."""
    option = config.option
    has_all_files = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    is_selection = any((option.keyword, option.markexpr, option.deselect, option.collectonly))
    has_ended = exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    return has_all_files and has_ended and not is_selection


def _has_skipped(config: pytest.Config) -> bool:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    return terminal is None or "skipped" in terminal.stats


def documented(daemon: str, document: Any) -> set[Answer]:
    """Return the answers in a daemon's Swagger document."""
    return {
        Answer(daemon, "other", UNMATCHED, status)
        if status in WITHOUT_PATH
        else Answer(daemon, method.upper(), unnamed(path), status)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
        for status in operation["responses"]
    }


def all_documented() -> set[Answer]:
    """Return the answers in both Swagger documents."""
    return {
        answer
        for daemon in DAEMONS
        for answer in documented(
            daemon, yaml.safe_load(files(daemon).joinpath("swagger.yml").read_text("utf-8"))
        )
    }


def problems(
    expected: Collection[Answer],
    found: Collection[Answer],
    exceptions: Mapping[str, Sequence[str]] = EXCEPTIONS,
) -> list[str]:
    """Return what is wrong with the answers of a whole run: one is missing, or not an exception."""
    excepted = {pattern for patterns in exceptions.values() for pattern in patterns}
    texts = {answer.text for answer in expected}
    missing = texts - {answer.text for answer in found}
    return [
        *(f"no test got {each}" for each in sorted(missing) if not _any_matches(excepted, each)),
        *(
            f"{each} needs no exception"
            for each in sorted(excepted)
            if not any(fnmatchcase(text, each) for text in missing)
            or any(fnmatchcase(text, each) for text in texts - missing)
        ),
    ]


def _any_matches(patterns: Collection[str], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
