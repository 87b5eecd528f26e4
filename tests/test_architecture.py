"""What CONTRIBUTING.md says of the code, and import-linter cannot check."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = ("agent", "registry", "httpd", "clients", "config", "runtime", "cli")
# Each folder in them has a row of its own in the map.
DAEMONS = ("agent", "registry")
MAX_ROWS = 25
# Where the parts are put together.
COMPOSITION_ROOTS = {
    *(TOP / "agent" / "daemon.py", TOP / "registry" / "daemon.py"),
}
# What is only passed on as one: the values of a transaction.
BUNDLES = {"agent/state/rows.py: AppTransaction"}
MAX_CONSTRUCTOR_PARAMETERS = 5
MAX_CONTEXT_FIELDS = 9
MAX_MODULES = 15


def sources(*folders: str) -> list[Path]:
    """Return all modules in some folders and their subfolders."""
    return sorted(path for folder in folders for path in (TOP / folder).rglob("*.py"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a node; most of a tree are expressions, which have none."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from statements(each)


def imported_modules(file: Path) -> Iterator[str]:
    """Yield what a file imports, as ``package.module`` or ``package.module.object``."""
    for node in statements(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                continue


def test_the_map_has_a_row_for_each_folder_of_the_daemons() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("\n## The map\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+/)` \|", section, re.MULTILINE)
    modules = [file for each in DAEMONS for file in (TOP / each).glob("*/__init__.py")]
    folders = [*PACKAGES, *(module.parent.relative_to(TOP) for module in modules)]

    assert [each for each in folders if f"{each}/" not in rows] == []
    assert [each for each in rows if not (TOP / each).is_dir()] == []
    assert len(rows) <= MAX_ROWS


@pytest.mark.parametrize("package", [*PACKAGES, "bench", "dev"])
def test_a_folder_holds_at_most_fifteen_modules(package: str) -> None:
    modules = Counter(path.parent for path in sources(package) if path.stem != "__init__")
    assert {f"{each}": count for each, count in modules.items() if count > MAX_MODULES} == {}


def test_a_folder_of_tests_holds_at_most_fifteen_modules() -> None:
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
        if "def __init__" in (text := file.read_text("utf-8"))
        for node in statements(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        and constructor_parameters(node) > MAX_CONSTRUCTOR_PARAMETERS
    ]
    assert found == []


@pytest.mark.slow
def test_a_dataclass_with_methods_has_at_most_five_fields() -> None:
    found = {
        f"{file.relative_to(TOP)}: {node.name}"
        for file in set(sources(*PACKAGES)) - COMPOSITION_ROOTS
        if "dataclass" in (text := file.read_text("utf-8"))
        for node in statements(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        and any(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        and sum(isinstance(each, ast.AnnAssign) for each in node.body) > MAX_CONSTRUCTOR_PARAMETERS
    }
    assert found == BUNDLES


def test_the_agents_context_has_at_most_nine_fields_and_only_parts_of_the_apps_import_it() -> None:
    file = TOP / "agent" / "apps" / "context.py"
    module = ast.parse(file.read_text("utf-8"))
    (context,) = (each for each in module.body if isinstance(each, ast.ClassDef))
    importers = {
        each.parent.relative_to(TOP).parts[:2]
        for each in sources(*PACKAGES)
        for name in imported_modules(each)
        if name.startswith("agent.apps.context")
    }

    assert importers == {("agent", "apps")}
    assert {type(each) for each in context.body[1:]} == {ast.AnnAssign}
    assert len(context.body[1:]) <= MAX_CONTEXT_FIELDS


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
