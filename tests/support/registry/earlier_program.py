"""The program of an earlier registry, beside which a newer one runs while a fleet is upgraded."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.machine.archives import unpack

TOP = Path(__file__).parents[3]
PROGRAM = TOP / "tests/e2e/registry/cluster/earlier_version/program.tar.xz"


def unpack_earlier_registry(folder: Path) -> Sequence[str]:
    """Unpack the program into a folder that is made; return the prefix with which a daemon runs it.

    It is the first registry that had all of the store in NATS. It is in the tree since a clone may
    lack the history; it was made by `git archive bcdab61 config httpd registry | xz -9e`.
    """
    unpack(PROGRAM, folder)
    return ["env", f"PYTHONPATH={folder}"]
