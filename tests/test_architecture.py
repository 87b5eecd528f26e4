"""CONTRIBUTING.md is true: its map shows every folder, and constructors are as small as it says."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = ("agent", "registry", "httpd", "config")
# Their top-level files are rows of their own: wiring, commands and the shared types.
DAEMONS = ("agent", "registry")
COMPOSITION_ROOTS = (TOP / "agent" / "daemon.py", TOP / "registry" / "daemon.py")
MAX_CONSTRUCTOR_PARAMETERS = 5


@pytest.fixture(scope="module")
def imports_by_row() -> dict[str, set[str]]:
    """Return what each row of the map imports, as rows."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(path for package in PACKAGES for path in (TOP / package).rglob("*.py")):
        here = row_of(file.relative_to(TOP))
        if here is not None:
            found[here] |= {row for row in imported_rows(file) if row not in (None, here)}
    return dict(found)


def row_of(path: Path) -> str | None:
    """Return the row that shows a file: its folder, or itself at the top of a daemon."""
    if path.parent.name in DAEMONS and len(path.parts) == 2:
        return None if path.stem == "__init__" else f"{path}"
    return f"{path.parent}/"


def imported_rows(file: Path) -> Iterator[str]:
    """Yield the rows of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [f"{module}.{alias.name}" for alias in names]
            case _:
                continue
        for module in modules:
            row = row_of_module(module)
            if row is not None:
                yield row


def row_of_module(name: str) -> str | None:
    """Return the row of ``package.module`` or ``package.module.object``; None for a library's."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return None
    for end in range(len(parts), 0, -1):
        place = Path(*parts[:end])
        if (TOP / place).is_dir():
            return row_of(place / "__init__.py")
        if (TOP / place).with_suffix(".py").is_file():
            return row_of(place.with_suffix(".py"))
    raise AssertionError(f"nothing of ours is called {name}")


def rows_of_the_page() -> Mapping[str, set[str]]:
    """Return the imports that the page states, by row."""
    text = (TOP / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("\n## The map\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| [^|]+ \| ([^|]*) \|$", section, re.MULTILINE)
    return {name: set(re.findall(r"`([^`]+)`", imports)) for name, imports in rows}


def test_the_map_shows_every_folder_with_what_it_imports(
    imports_by_row: Mapping[str, set[str]],
) -> None:
    assert rows_of_the_page() == imports_by_row


def test_no_folders_import_each_other_in_a_circle(imports_by_row: Mapping[str, set[str]]) -> None:
    # A folder and those in it are one: its own files may use what lies deeper, and the reverse.
    tops = {row: outermost(row) for row in imports_by_row}
    merged: dict[str, set[str]] = defaultdict(set)
    for row, targets in imports_by_row.items():
        merged[tops[row]] |= {tops[target] for target in targets} - {tops[row]}

    left = dict(merged)
    while leaves := [row for row, targets in left.items() if not targets & left.keys()]:
        for row in leaves:
            del left[row]
    assert left == {}


def outermost(row: str) -> str:
    """Return ``agent/apps/`` for ``agent/apps/operations/``, and any shorter row as it is."""
    parts = row.rstrip("/").split("/")
    return row if len(parts) <= 2 else f"{'/'.join(parts[:2])}/"


@pytest.mark.slow
def test_a_constructor_takes_at_most_five_parameters() -> None:
    files = {
        path
        for folder in (*PACKAGES, "bench", "dev", "tests")
        for path in (TOP / folder).rglob("*.py")
    }
    found = [
        f"{file.relative_to(TOP)}: {node.name}"
        for file in sorted(files - {*COMPOSITION_ROOTS})
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and constructor_parameters(node) > MAX_CONSTRUCTOR_PARAMETERS
    ]
    assert found == []


def constructor_parameters(node: ast.ClassDef) -> int:
    """Return how many parameters the class's own ``__init__`` takes besides ``self``."""
    return sum(
        len([*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs]) - 1
        for made in node.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
    )
