"""The fast tests on the Pythons of later Debians, where other warnings fail them."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.e2e.package_host import python_tree, run_in_tree
from tests.support.pages import TOP
from tests.support.requirements import FAST, need_root

# The fast tests need neither what git ignores nor the repository.
LEFT_OUT = (".git", ".venv", "var", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")
# The modules take their version from what is installed, so the project is installed as well. No
# variable of the tests that run this, such as CI, has an effect.
SCRIPT = f"""\
export PATH=/environment/bin:$PATH HOME=/root
cd /source
python3 -m venv /environment
pip install --quiet --no-index --find-links /wheels --no-compile --editable '.[dev]'
python --version
env --ignore-environment PATH="$PATH" HOME=/root \\
  python -m pytest -m '{FAST}' -n 2 --dist loadfile --hypothesis-profile fast -q
"""


@pytest.mark.release("the fast tests again, on two more Pythons")
@pytest.mark.long(4)
@pytest.mark.real("mmdebstrap", "unshare", "ip")
@pytest.mark.parametrize("python", ["3.13", "3.14"])
def test_fast_tests_pass_without_warnings(python: str, tmp_path: Path) -> None:
    need_root()
    tree = tmp_path / "tree"
    python_tree(python, tree, "requirements-dev.txt")
    shutil.copytree(TOP, tree / "source", ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)

    status, printed = run_in_tree(tree, SCRIPT)

    assert status == 0, printed
    assert f"\nPython {python}." in f"\n{printed}"
    # A skipped test or a warning would be named there, too.
    assert re.fullmatch(r"\d{4,} passed in .*", printed.splitlines()[-1]), printed
