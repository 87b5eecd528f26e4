from pathlib import Path

import pytest

from httpd.systemd.credentials import NotRefreshed, refresh


def test_changed_files_replace_the_credentials(tmp_path: Path) -> None:
    folder, keys = tmp_path / "credentials", tmp_path / "keys"
    folder.mkdir()
    keys.mkdir()
    (folder / "ops.key").write_text("old")
    (folder / "ops.key").chmod(0o400)
    (folder / "mine").write_text("set in the unit")
    for name in ("ops.key", "more.key"):
        (keys / name).write_text("new")

    refresh(folder, {name: keys / name for name in ("ops.key", "more.key")})

    held = {file.name: (file.read_text(), file.stat().st_mode & 0o777) for file in folder.iterdir()}
    assert held["ops.key"] == held["more.key"] == ("new", 0o400)
    assert held["mine"][0] == "set in the unit"
    assert set(held) == {"ops.key", "more.key", "mine"}


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "a.key").write_text("old")
    (tmp_path / "a.key").write_text("new")
    missing = tmp_path / "b.key"

    with pytest.raises(NotRefreshed, match=f"^{missing}: No such file or directory$"):
        refresh(folder, {"a.key": tmp_path / "a.key", "b.key": missing})

    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("a.key", "old")]
