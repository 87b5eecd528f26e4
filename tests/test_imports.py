"""Each module can be imported first: none relies on another's having been imported before."""

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
# From the lowest layer up: none imports one above it, so only a package's own have to be forgotten.
IMPORT_EACH_FIRST = """
import gc, importlib, pkgutil, sys

gc.set_threshold(200_000)  # each round leaves modules, and no other garbage

for package in ("runtime", "config", "clients", "httpd", "registry", "agent"):
    path = importlib.import_module(package).__path__
    modules = [package, *(each.name for each in pkgutil.walk_packages(path, f"{package}."))]
    for module in modules:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{module}: {error}")
    print(len(modules), file=sys.stderr)
"""


@pytest.mark.real
@pytest.mark.release("tests/dev/test_measure.py counts cycles of imports each time")
def test_every_module_can_be_imported_before_any_other() -> None:
    tried = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_FIRST],
        cwd=TOP,
        check=True,
        capture_output=True,
        text=True,
    )

    assert tried.stdout == ""
    assert sum(map(int, tried.stderr.split())) > 100
