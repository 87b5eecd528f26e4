"""A store where nothing else can be written, as in a container whose other files are read-only."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from registry.store.sqlite.backend import SqliteBackend
from tests.support.registry.stores.sqlite_store import row
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("unshare", "mount", "mountpoint")
NODES = 3000
DOCUMENT = b'{"labels":[],"kv":{"text":"%b"}}' % (b"x" * 400)
# Each mount is made read-only but for the folder, which is the first argument. Files that are
# mounted hold no other files, and mounts that others hide, as a new /run does, are out of reach.
READ_ONLY = """
mount --bind "$1" "$1"
cut -d ' ' -f 5 /proc/self/mountinfo | sort -u | while read -r point; do
    case "$point" in "$1"|/proc*|/sys*) continue;; esac
    if mountpoint -q "$point"; then mount -o remount,bind,ro "$point"; fi
done
if touch /tmp/written 2>/dev/null; then exit 9; fi
shift
exec "$@"
"""


def read_only(folder: Path, command: Sequence[str]) -> str:
    """Return the output of a command that can write to one folder alone."""
    shell = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", READ_ONLY, "sh"]
    ran = subprocess.run(
        [*shell, str(folder), *command], check=False, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_store_is_changed_where_no_temporary_file_can_be_made(tmp_path: Path) -> None:
    need_root()
    path = tmp_path / "data" / "r.db"
    path.parent.mkdir()
    SqliteBackend(path).fill([row(f"h{number:04}", DOCUMENT) for number in range(NODES)])

    command = [sys.executable, "-m", "tests.support.registry.stores.changing", str(path)]
    assert read_only(path.parent, command) == f"{NODES}\n"
