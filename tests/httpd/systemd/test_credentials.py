import os
import struct
from pathlib import Path

import pytest

from httpd.systemd.credentials import NotRefreshed, refresh, sources

ACL = "system.posix_acl_access"
# Tag, permissions and id of: the owner, a user, the group, the mask, others.
ACL_ENTRIES = [(1, 4, -1), (2, 4, 1234), (4, 0, -1), (16, 4, -1), (32, 0, -1)]


def test_changed_files_replace_the_credentials(tmp_path: Path) -> None:
    folder, keys = tmp_path / "credentials", tmp_path / "keys"
    folder.mkdir()
    keys.mkdir()
    (folder / "ops.key").write_text("old")
    (folder / "ops.key").chmod(0o400)
    (folder / "mine").write_text("set in the unit")
    (keys / "ops.key").write_text("new")

    refresh(folder, {"ops.key": keys / "ops.key"})

    held = {file.name: file.read_text() for file in folder.iterdir()}
    assert held == {"ops.key": "new", "mine": "set in the unit"}
    assert (folder / "ops.key").stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("name", ["ops.key", "later.key"])
def test_whoever_can_read_a_credential_can_read_a_new_one(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    credential = folder / "ops.key"
    credential.write_text("old")
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in ACL_ENTRIES)
    os.setxattr(credential, ACL, acl)
    (tmp_path / name).write_text("new")

    refresh(folder, {name: tmp_path / name})

    assert (folder / name).read_text() == "new"
    assert os.getxattr(folder / name, ACL) == acl
    assert (folder / name).stat().st_mode == credential.stat().st_mode


def test_where_there_is_no_credential_a_new_one_needs_a_restart(tmp_path: Path) -> None:
    (tmp_path / "later.key").write_text("new")

    with pytest.raises(NotRefreshed, match="`systemctl restart` loads later"):
        refresh(tmp_path / "credentials", {"later.key": tmp_path / "later.key"})


def test_what_is_loaded_from_a_folder_waits_for_a_restart(tmp_path: Path) -> None:
    folder, keys = tmp_path / "credentials", tmp_path / "keys"
    folder.mkdir()
    keys.mkdir()
    (folder / "keys_ops.key").write_text("old")
    (keys / "ops.key").write_text("new")

    refresh(folder, {"keys": keys})

    assert [file.read_text() for file in folder.iterdir()] == ["old"]


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name in ("a.key", "b.key"):
        (folder / name).write_text("old")
    (tmp_path / "a.key").write_text("new")
    missing = tmp_path / "b.key"

    with pytest.raises(NotRefreshed, match=f"^{missing}: No such file or directory$"):
        refresh(folder, {"a.key": tmp_path / "a.key", "b.key": missing})

    assert [(file.name, file.read_text()) for file in sorted(folder.iterdir())] == [
        ("a.key", "old"),
        ("b.key", "old"),
    ]


@pytest.mark.parametrize(
    ("busctl", "reported"),
    [
        ("/bin/false", "^/bin/false .* GetUnit s a.service failed$"),
        ("/missing/busctl", "^/missing/busctl: No such file or directory$"),
    ],
)
def test_a_systemd_that_does_not_answer_is_reported(busctl: str, reported: str) -> None:
    with pytest.raises(NotRefreshed, match=reported):
        sources("a.service", busctl=busctl)
