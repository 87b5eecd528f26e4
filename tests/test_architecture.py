"""CONTRIBUTING.md is true: its map shows every folder, and constructors are as small as it says."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = ("agent", "registry", "httpd", "config", "cli")
# Programs, whose top-level files are rows of their own: wiring, commands and the shared types.
PROGRAMS = ("agent", "registry", "cli")
# Where the parts are put together.
COMPOSITION_ROOTS = {
    *(TOP / "agent" / "daemon.py", TOP / "registry" / "daemon.py"),
    *(TOP / "agent" / "apps" / "composition").iterdir(),
    TOP / "registry" / "composition.py",
}
# What is only passed on as one: all operations, the values of a transaction.
BUNDLES = {"agent/apps/operations/__init__.py: Operations", "agent/state/rows.py: AppTransaction"}
MAX_CONSTRUCTOR_PARAMETERS = 5
MAX_MODULES = 12


@pytest.fixture(scope="module")
def imports_by_row() -> dict[str, set[str]]:
    """Return what each row of the map imports, as rows."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sources(*PACKAGES):
        here = row_of(file.relative_to(TOP))
        if here is not None:
            found[here] |= {row for row in imported_rows(file) if row not in (None, here)}
    return dict(found)


def row_of(path: Path) -> str | None:
    """Return the row that shows a file: its folder, or itself at the top of a program."""
    if path.parent.name in PROGRAMS and len(path.parts) == 2:
        return None if path.stem == "__init__" else f"{path}"
    return f"{path.parent}/"


def sources(*folders: str) -> list[Path]:
    """Return all modules in some folders and their subfolders."""
    return sorted(path for folder in folders for path in (TOP / folder).rglob("*.py"))


def imported_rows(file: Path) -> Iterator[str]:
    """Yield the rows of the modules that a file imports."""
    for module in imported_modules(file):
        row = row_of_module(module)
        if row is not None:
            yield row


def imported_modules(file: Path) -> Iterator[str]:
    """Yield what a file imports, as ``package.module`` or ``package.module.object``."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                continue


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


@pytest.mark.slow
def test_the_map_shows_every_folder_with_what_it_imports(
    imports_by_row: Mapping[str, set[str]],
) -> None:
    assert rows_of_the_page() == imports_by_row


@pytest.mark.slow
def test_no_folders_import_each_other_in_a_circle(imports_by_row: Mapping[str, set[str]]) -> None:
    left = dict(imports_by_row)
    while leaves := [row for row, targets in left.items() if not targets & left.keys()]:
        for row in leaves:
            del left[row]
    assert left == {}


@pytest.mark.parametrize("package", [*PACKAGES, "bench", "dev"])
def test_a_folder_holds_at_most_a_dozen_modules(package: str) -> None:
    modules = Counter(path.parent for path in sources(package) if path.stem != "__init__")
    assert {f"{each}": count for each, count in modules.items() if count > MAX_MODULES} == {}


def test_a_folder_of_tests_holds_at_most_a_dozen_modules() -> None:
    modules = Counter(path.parent for path in sources("tests") if path.stem != "__init__")
    assert {f"{each}": count for each, count in modules.items() if count > MAX_MODULES} == {}


@pytest.mark.slow
def test_helpers_of_tests_are_in_no_test_module() -> None:
    found = [
        f"{file.relative_to(TOP)}: {module}"
        for file in sources("bench", "dev", "tests")
        for module in imported_modules(file)
        if module.startswith("tests.")
        for part in module.removeprefix("tests.").removeprefix("test_support.").split(".")
        if part == "conftest" or part.startswith("test_")
    ]
    assert found == []


@pytest.mark.slow
def test_a_constructor_takes_at_most_five_parameters() -> None:
    files = set(sources(*PACKAGES, "bench", "dev", "tests"))
    found = [
        f"{file.relative_to(TOP)}: {node.name}"
        for file in sorted(files - COMPOSITION_ROOTS)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and constructor_parameters(node) > MAX_CONSTRUCTOR_PARAMETERS
    ]
    assert found == []


@pytest.mark.slow
def test_a_dataclass_with_methods_has_at_most_five_fields() -> None:
    found = {
        f"{file.relative_to(TOP)}: {node.name}"
        for file in set(sources(*PACKAGES)) - COMPOSITION_ROOTS
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        and any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        and sum(isinstance(each, ast.AnnAssign) for each in node.body) > MAX_CONSTRUCTOR_PARAMETERS
    }
    assert found == BUNDLES


def test_the_files_that_the_page_names_exist() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text("utf-8")
    tops = "|".join((*PACKAGES, "bench", "dev", "tests"))
    named = re.findall(rf"`((?:{tops})/[a-z0-9_/.]+)`", text)
    assert [each for each in named if not (TOP / each).exists()] == []
    assert named


def constructor_parameters(node: ast.ClassDef) -> int:
    """Return how many parameters the class's own ``__init__`` takes besides ``self``."""
    return sum(
        len([*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs]) - 1
        for made in node.body
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
    )
