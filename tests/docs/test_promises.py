"""The page of promises: each has tests, which exist and are run by `make test`."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache

import pytest

from tests.support.pages import TOP, Page
from tests.support.run.release import MARK

ROW = re.compile(r"^\| (?!promise |--- )(.+) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")

pytestmark = pytest.mark.page("docs/promises.md")


def test_each_promise_is_named_once_and_has_tests_alone(page: Page) -> None:
    rows = ROW.findall(page.text)
    names = [name for name, _, _ in rows]

    assert len(set(names)) == len(names) > 0
    assert [name for name, _, tests in rows if TEST.sub("", tests).strip(", ")] == []
    assert [name for name, _, tests in rows if not TEST.search(tests)] == []


def test_each_test_of_a_promise_exists_and_is_run_by_make_test(page: Page) -> None:
    named = TEST.findall(page.text)

    assert [f"{file}::{name}" for file, name in named if name not in run_by_make_test(file)] == []


def test_a_test_that_a_release_alone_runs_is_found() -> None:
    assert "test_data_outlives_every_change_and_comes_back_from_a_copy" not in run_by_make_test(
        "tests/agent/apps/archives/test_services.py"
    )
    assert run_by_make_test("tests/deploy/test_build.py")
    assert "test_lintian_finds_nothing_in_what_is_of_another_architecture" not in (
        run_by_make_test("tests/deploy/test_build.py")
    )


@cache
def run_by_make_test(file: str) -> frozenset[str]:
    """Return the tests of a file but for those with the mark ``release``."""
    if not (TOP / file).is_file():
        return frozenset()
    body = ast.parse((TOP / file).read_text()).body
    if any(_is_release(mark, body) for mark in _marks_of_file(body)):
        return frozenset()
    return frozenset(
        node.name
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(_is_release(mark, body) for mark in node.decorator_list)
    )


def _marks_of_file(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    for mark in _assigned("pytestmark", body):
        yield from mark.elts if isinstance(mark, ast.List) else [mark]


def _is_release(mark: ast.expr, body: Sequence[ast.stmt]) -> bool:
    """Return whether this is the mark ``release``, or the name of one that the file makes."""
    marks = [mark, *(_assigned(mark.id, body) if isinstance(mark, ast.Name) else ())]
    return any(ast.unparse(each).startswith(f"pytest.mark.{MARK}") for each in marks)


def _assigned(name: str, body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    for node in body:
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]:
            yield node.value
