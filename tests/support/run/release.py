"""The mark ``release``: tests that `make test-all` runs, and `make test` leaves out.

A file or a test that is named on the command line runs without the option.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

OPTION = "--release"
MARK = "release"


def some_of(cases: Iterable[Any], *tested: Any, reason: str) -> list[Any]:
    """Return cases for `parametrize`, of which `make test` runs only those that are named.

    A tuple is the values of several parameters.
    """
    mark = pytest.mark.release(reason)
    return [case if case in tested else pytest.param(*_values(case), marks=mark) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)


def add_option(parser: pytest.Parser) -> None:
    """Add the option ``--release``."""
    parser.addoption(OPTION, action="store_true", help="also run tests with the mark `release`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect release tests, unless the option is given or the command line names their file.

    Raises:
        UsageError: a mark has no reason.

    """
    _require_reasons(items)
    if config.getoption(OPTION):
        return
    named = _named_files(config.args, config.invocation_params.dir)
    left_out = [each for each in items if is_release(each) and each.path not in named]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [each for each in items if each not in set(left_out)]


def is_release(item: pytest.Item) -> bool:
    """Return whether the test, its class or its file has the mark."""
    return item.get_closest_marker(MARK) is not None


def _require_reasons(items: Iterable[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers(MARK):
            if not (len(mark.args) == 1 and isinstance(mark.args[0], str) and mark.args[0]):
                raise pytest.UsageError(f'{item.nodeid}: write the reason, @mark.{MARK}("...")')


def _named_files(arguments: Iterable[str], folder: Path) -> set[Path]:
    paths = (folder / each.partition("::")[0] for each in arguments)
    return {path.resolve() for path in paths if path.is_file()}
