"""Measure the size and the structure of the program, beside those in `dev/measure.json`.

``python -m dev.measure`` prints the figures; ``--write`` makes them the baseline.
"""

import argparse
import ast
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dev.flows import flows

TOP = Path(__file__).parents[1]
BASELINE = Path(__file__).with_suffix(".json")
# What must not grow. The other figures are only printed.
BOUNDED = (
    *("constructor lines", "pass-on methods", "import cycles"),
    *("frames of a rebuild", "frames of GET /v1/apps"),
    *("calls of an unchanged heartbeat", "calls of a changed heartbeat"),
)
AREAS = ("agent", "registry", "cli", "httpd", "config", "runtime", "clients", "deploy", "web")
TESTS = "tests"
SUPPORT = "tests/support"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A Python file of the repository; the path is relative to its top."""

    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return len(self.text.splitlines())


def main(arguments: Sequence[str]) -> int:
    """Print the figures beside the baseline, or write the baseline; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dev.measure", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make these figures the baseline")
    found = all_figures()
    if parser.parse_args(arguments).write:
        BASELINE.write_text(f"{json.dumps(found, indent=2)}\n")
        return 0
    before = baseline()
    for name, value in found.items():
        print(f"{name:34} {value:>8} {before.get(name, 0):>8}")
    grown = grown_figures(found, before)
    for line in grown:
        print(f"rollcall: {line}", file=sys.stderr)
    return 1 if grown else 0


def all_figures() -> dict[str, int]:
    """Return the figures of the files and of the flows by their names."""
    return figures(tracked_modules(TOP)) | asyncio.run(flows())


def baseline() -> dict[str, int]:
    """Return the figures that were written last."""
    found: dict[str, int] = json.loads(BASELINE.read_text())
    return found


def grown_figures(found: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """Return a line for each figure that is larger than in the baseline and must not be."""
    return [
        f"{name} grew from {before[name]} to {found[name]}; see `python -m dev.measure`"
        for name in BOUNDED
        if found[name] > before[name]
    ]


def tracked_modules(top: Path) -> list[Module]:
    """Return the Python files that git tracks, and those that it does not ignore."""
    command = ["git", "-C", str(top), "ls-files", "-co", "--exclude-standard", "-z", "*.py"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = sorted({Path(name) for name in names.split("\0") if name})
    return [
        Module(path, (top / path).read_text("utf-8")) for path in paths if (top / path).is_file()
    ]


def figures(modules: Sequence[Module]) -> dict[str, int]:
    """Return the figures of some modules by their names."""
    product = [each for each in modules if each.path.parts[0] != TESTS]
    tests = [each for each in modules if each.path.parts[0] == TESTS]
    support = [each for each in tests if str(each.path).startswith(f"{SUPPORT}/")]
    methods = [method for each in product for method in methods_of(each.tree)]
    graph = imports(product)
    return {
        "lines": sum(each.lines for each in product),
        "statements": sum(map(statements, product)),
        "files": len(product),
        **_areas(product),
        "test lines": sum(each.lines for each in tests),
        "test files": len(tests),
        "support lines": sum(each.lines for each in support),
        "constructor lines": sum(_length(each) for each in methods if each.name == "__init__"),
        "pass-on methods": sum(map(passes_on, methods)),
        "imports": sum(map(len, graph.values())),
        "import cycles": len(cycles(graph)),
    }


def _areas(product: Sequence[Module]) -> dict[str, int]:
    parts = {area: [each for each in product if each.path.parts[0] == area] for area in AREAS}
    return {
        f"{area} {unit}": value
        for area, found in parts.items()
        for unit, value in (("lines", sum(each.lines for each in found)), ("files", len(found)))
        if found
    }


def statements(module: Module) -> int:
    """Count the statements of a module."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(module.tree))


def methods_of(tree: ast.Module) -> Iterator[Function]:
    """Yield the methods of all classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield each


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def passes_on(method: Function) -> bool:
    """Return whether a method only calls another one with its own parameters, in their order."""
    body = method.body[1:] if ast.get_docstring(method) else method.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or not _is_of_self(call.func):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    names = [each.id for each in given if isinstance(each, ast.Name)]
    parameters = [each.arg for each in (*method.args.args[1:], *method.args.kwonlyargs)]
    return len(names) == len(given) and names == parameters


def _is_of_self(called: ast.expr) -> bool:
    """Return whether a function is a method of an attribute of self."""
    while isinstance(called, ast.Attribute) and isinstance(called.value, ast.Attribute):
        called = called.value
        if isinstance(called.value, ast.Name):
            return called.value.id == "self"
    return False


def imports(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Return which of these modules each one imports, by their dotted names."""
    by_name = {_dotted(each.path): each for each in modules}
    return {
        name: {target for target in _imported(module.tree) if target in by_name} - {name}
        for name, module in by_name.items()
    }


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return each group of modules that import one another, directly or through others."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return [sorted(group) for group in groups]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found = set[str]()
    left = list(graph[start])
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(graph[name])
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
