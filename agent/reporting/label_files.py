"""Labels of the host that are read from the files in a directory."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from clients.message import label_error

MAX_FILE_BYTES = 1024 * 1024


class LabelFiles:
    """Reads files with one label on each line; blank lines and ``#`` comments are skipped.

    Hidden files and those whose name ends in ``~`` belong to editors and are not read. A file that
    exists but cannot be read keeps the labels of the last good reading, so that a mistake in it
    does not remove a scrape target. So do all files of a directory that is missing, as while it is
    replaced, or that cannot be read; an empty one has no labels. ``warn`` is called once for each
    fault, and again if the fault returns after it was corrected.
    """

    def __init__(self, *, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._last_good: dict[Path, list[str]] = {}
        self._faults: set[str] = set()

    def read(self, directory: Path) -> list[str]:
        """Return the labels of all files in the directory, sorted by file name. Raises nothing."""
        faults: set[str] = set()
        self._last_good = {
            path: self._read_labels(path, faults) for path in self._list_files(directory, faults)
        }
        for fault in sorted(faults - self._faults):
            self._warn(fault)
        self._faults = faults
        return [label for labels in self._last_good.values() for label in labels]

    def _list_files(self, directory: Path, faults: set[str]) -> list[Path]:
        try:
            paths = sorted(directory.iterdir())
        except OSError as error:
            known = [path for path in self._last_good if path.parent == directory]
            if known or not isinstance(error, FileNotFoundError):
                faults.add(f"{_printable(directory)}: {error.strerror}")
            return known
        return [path for path in paths if not _is_editor_file(path) and _may_be_file(path)]

    def _read_labels(self, path: Path, faults: set[str]) -> list[str]:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            if len(content) > MAX_FILE_BYTES:
                faults.add(f"{_printable(path)}: is larger than {MAX_FILE_BYTES} bytes")
            else:
                # Some editors write a byte order mark.
                return list(_lines(path, content.decode("utf-8-sig"), faults))
        except OSError as error:
            faults.add(f"{_printable(path)}: {error.strerror}")
        except UnicodeDecodeError:
            faults.add(f"{_printable(path)}: is not UTF-8")
        return self._last_good.get(path, [])


def _is_editor_file(path: Path) -> bool:
    return path.name.startswith(".") or path.name.endswith("~")


def _may_be_file(path: Path) -> bool:
    """Return whether to read the path: a file, or what cannot be followed to one.

    `Path.is_file` is no help: whether it raises for a link that cannot be followed depends on the
    version of Python.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return path.is_symlink()  # without a link, the file was removed after it was listed
    except OSError:
        return True  # reading it gives the reason


def _printable(path: Path) -> str:
    """Return the path as valid UTF-8, which file names need not be."""
    return str(path).encode(errors="backslashreplace").decode()


def _lines(path: Path, content: str, faults: set[str]) -> Iterator[str]:
    for number, line in enumerate(content.split("\n"), start=1):
        label = line.strip()
        if not label or label.startswith("#"):
            continue
        fault = label_error(label)
        if fault is None:
            yield label
        else:
            faults.add(f"{_printable(path)}, line {number}: {fault}")
