"""A store where nothing else can be written, as in a container whose other files are read-only."""

import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.registry.stores.sqlite_store import EARLIER, write_earlier_store
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


@pytest.mark.parametrize("fixture", EARLIER[1:], ids=lambda fixture: fixture.stem)
def test_a_store_is_migrated_and_changed_where_no_temporary_file_can_be_made(
    fixture: Path, tmp_path: Path
) -> None:
    need_root()
    path = tmp_path / "data" / "r.db"
    write_earlier_store(path, fixture)
    with closing(sqlite3.connect(path)) as connection:
        (before,) = connection.execute("SELECT count(*) FROM node").fetchone()
        names = [f"h{number:04}" for number in range(NODES)]
        connection.executemany(
            "INSERT INTO node VALUES (?, ?, ?, 1700000000, 100, '192.0.2.1')",
            [(name, DOCUMENT, zlib.crc32(DOCUMENT, zlib.crc32(name.encode()))) for name in names],
        )
        connection.commit()

    command = [sys.executable, "-m", "tests.support.registry.stores.changing", str(path)]
    assert read_only(path.parent, command) == f"{before + NODES}\n"
