import os
from pathlib import Path

import pytest

from agent.reporting.label_files import MAX_FILE_BYTES, LabelFiles


class LabelReader:
    """The files of one folder."""

    def __init__(self, folder: Path, faults: list[str] | None = None) -> None:
        self._folder = folder
        self._files = LabelFiles(warn=(faults if faults is not None else []).append)

    def read(self) -> list[str]:
        return self._files.read(self._folder)


def test_each_line_of_each_file_is_a_label_by_file_name(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("rack:r12\n")
    (tmp_path / "a").write_text("\n# where\n  site:north  \r\nsite:south\n\n")

    assert LabelReader(tmp_path).read() == ["site:north", "site:south", "rack:r12"]


def test_a_mark_at_the_beginning_of_a_file_is_part_of_no_label(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("\ufeffsite:north\n".encode())
    (tmp_path / "b").write_bytes("\ufeff# where\n".encode())

    assert LabelReader(tmp_path).read() == ["site:north"]


def test_another_directory_has_labels_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("one:1")
    faults: list[str] = []
    labels = LabelFiles(warn=faults.append)

    assert labels.read(tmp_path / "a") == ["one:1"]
    assert labels.read(tmp_path / "a" / "file") == []
    assert len(faults) == 1
    assert labels.read(tmp_path / "b") == []


def test_files_that_come_change_and_go_are_seen_at_the_next_reading(tmp_path: Path) -> None:
    labels = LabelReader(tmp_path)

    assert labels.read() == []
    (tmp_path / "a").write_text("one:1")
    assert labels.read() == ["one:1"]
    (tmp_path / "a").write_text("two:2")
    assert labels.read() == ["two:2"]
    (tmp_path / "a").unlink()
    assert labels.read() == []


def test_no_directory_is_no_labels_and_no_fault(tmp_path: Path) -> None:
    faults: list[str] = []

    assert LabelReader(tmp_path / "labels.d", faults).read() == []
    assert faults == []


@pytest.mark.parametrize("is_file", [False, True], ids=["missing", "no directory"])
def test_a_directory_that_cannot_be_read_for_a_while_keeps_its_labels(
    tmp_path: Path, *, is_file: bool
) -> None:
    faults: list[str] = []
    folder = tmp_path / "labels.d"
    folder.mkdir()
    (folder / "a").write_text("good:1")
    labels = LabelReader(folder, faults)
    labels.read()

    folder.rename(tmp_path / "old")
    if is_file:
        folder.touch()
    away = [labels.read(), labels.read()]
    reported = len(faults)
    folder.unlink(missing_ok=True)
    folder.mkdir()

    assert away == [["good:1"], ["good:1"]]
    assert any(fault.startswith(f"{folder}: ") for fault in faults)
    assert labels.read() == []
    assert len(faults) == reported


def test_what_is_no_file_or_an_editors_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / ".a.swp").write_text("no:1")
    (tmp_path / "a~").write_text("no:2")
    (tmp_path / "a").write_text("yes:1")

    assert LabelReader(tmp_path).read() == ["yes:1"]


def test_a_bad_line_costs_no_other_and_is_reported_once_with_its_place(tmp_path: Path) -> None:
    faults: list[str] = []
    (tmp_path / "a").write_text(f"good:1\n{'x' * 1025}\nbell:\x07\ngood:2\n")
    labels = LabelReader(tmp_path, faults)

    for _ in range(3):
        assert labels.read() == ["good:1", "good:2"]
    assert [fault.rpartition(": ")[0] for fault in faults] == [
        f"{tmp_path / 'a'}, line 2",
        f"{tmp_path / 'a'}, line 3",
    ]


def test_a_file_that_cannot_be_read_for_a_while_keeps_its_labels(tmp_path: Path) -> None:
    faults: list[str] = []
    (tmp_path / "a").write_text("good:1")
    labels = LabelReader(tmp_path, faults)
    labels.read()

    (tmp_path / "a").write_bytes(b"\xff\xfe")
    assert labels.read() == ["good:1"]
    (tmp_path / "a").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert labels.read() == ["good:1"]
    (tmp_path / "a").write_text("good:2")
    assert labels.read() == ["good:2"]
    assert len(faults) == 2


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("removed", "No such file or directory"),
        ("a", "Too many levels of symbolic links"),
        ("b/c", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_link_that_cannot_be_followed_costs_no_labels(
    target: str, reason: str, tmp_path: Path
) -> None:
    faults: list[str] = []
    (tmp_path / "a").write_text("good:1")
    (tmp_path / "b").write_text("good:2")
    labels = LabelReader(tmp_path, faults)
    labels.read()

    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to(target)

    assert labels.read() == ["good:1", "good:2"]
    assert faults == [f"{tmp_path / 'a'}: {reason}"]


def test_a_fault_can_be_reported_whatever_the_file_is_called(tmp_path: Path) -> None:
    faults: list[str] = []
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"\xff")

    LabelReader(tmp_path, faults).read()

    assert [fault.encode().decode() for fault in faults] == faults
    assert len(faults) == 1


def test_a_fault_that_comes_back_is_reported_again(tmp_path: Path) -> None:
    faults: list[str] = []
    labels = LabelReader(tmp_path, faults)

    for content in (b"\xff", b"good:1", b"\xff"):
        (tmp_path / "a").write_bytes(content)
        labels.read()

    assert len(faults) == 2


def test_a_file_that_is_too_large_is_reported_as_that_wherever_it_is_cut(tmp_path: Path) -> None:
    faults: list[str] = []
    (tmp_path / "a").write_bytes(b"x" + "\u00e9".encode() * MAX_FILE_BYTES)

    LabelReader(tmp_path, faults).read()

    assert faults == [f"{tmp_path / 'a'}: is larger than {MAX_FILE_BYTES} bytes"]
