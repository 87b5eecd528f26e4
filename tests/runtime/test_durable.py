import os
import signal
from pathlib import Path

import pytest

from runtime.durable import new_file, replacing


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_as_a_whole_and_private(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with replacing(path, durable=durable) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_could_not_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_half()

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_of_a_killed_process_is_removed_and_one_in_use_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    ready, written = os.pipe()
    writer = os.fork()
    if not writer:
        with new_file(path):
            os.write(written, b"1")
            signal.pause()
    os.read(ready, 1)
    (draft,) = tmp_path.iterdir()

    with replacing(path) as file:
        file.write(b"first")
    beside = draft.exists()
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    with replacing(path) as file:
        file.write(b"second")

    assert beside
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("other", ["folder", "link"])
def test_what_is_no_draft_keeps_no_file_from_being_written(tmp_path: Path, other: str) -> None:
    path, name = tmp_path / "file", tmp_path / ".file.1.new"
    if other == "folder":
        name.mkdir()
    else:
        name.symlink_to(tmp_path / "nowhere")

    with replacing(path) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
    assert name.is_dir() == (other == "folder")
