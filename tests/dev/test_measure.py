"""The figures of the program's structure do not grow, and are found where they are."""

import ast
from pathlib import Path

import pytest

from dev.measure import (
    Module,
    all_figures,
    baseline,
    cycles,
    figures,
    grown_figures,
    imports,
    methods_of,
    passes_on,
)

SOURCE = '''
from shop import cart

class Shop:
    """Sells."""

    def __init__(self, till):
        self._till = till

    def sell(self, what, *, price):
        """Sell."""
        return self._till.sell(what, price=price)

    async def close(self):
        await self._till.close()

    def give(self, what):
        return self._till.sell(what, price=0)

    def count(self):
        return len(self._till)
'''


def module(name: str, text: str) -> Module:
    return Module(Path(name), text)


@pytest.mark.slow
def test_the_structure_of_the_program_does_not_get_worse() -> None:
    assert grown_figures(all_figures(), baseline()) == []


def test_a_figure_that_grows_is_named_with_both_values() -> None:
    before = baseline()
    (line,) = grown_figures(before | {"pass-on methods": 10_000}, before)
    assert line.startswith(f"pass-on methods grew from {before['pass-on methods']} to 10000")


def test_a_method_passes_on_where_it_calls_another_with_its_own_parameters() -> None:
    methods = methods_of(ast.parse(SOURCE))
    assert [each.name for each in methods if passes_on(each)] == ["sell", "close"]


def test_tests_are_counted_apart_from_the_program() -> None:
    found = figures(
        [
            module("agent/a.py", "import os\nx = 1\n"),
            module("tests/test_a.py", "x = 1\n" * 5),
            module("tests/support/b.py", "x = 1\n" * 3),
        ]
    )
    assert (found["lines"], found["statements"], found["files"]) == (2, 2, 1)
    assert (found["test lines"], found["support lines"]) == (8, 3)


def test_modules_that_import_one_another_are_a_cycle() -> None:
    modules = [
        module("shop/__init__.py", ""),
        module("shop/cart.py", "import shop.till"),
        module("shop/till.py", "from shop.door import Door"),
        module("shop/door.py", "from shop import cart"),
        module("shop/yard.py", "from shop import cart"),
    ]
    assert cycles(imports(modules)) == [["shop.cart", "shop.door", "shop.till"]]
