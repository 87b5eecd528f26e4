"""The labels that files in a directory give a host."""

from collections.abc import Callable, Iterator
from pathlib import Path

from registry.heartbeat import label_fault

LARGEST_FILE = 1024 * 1024


class LabelFiles:
    """A directory of files with one label on each line; blank lines and ``#`` comments are skipped.

    Hidden files and those that end in ``~`` belong to editors and are not read. A file that is
    there but cannot be read keeps the labels it had, so that a slip of the pen costs no target.
    ``complain`` is told of each fault once, and again when it comes back.
    """

    def __init__(self, *, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._known: dict[Path, list[str]] = {}
        self._faults: set[str] = set()

    def read(self, directory: Path) -> list[str]:
        """Give the labels of all files in the directory, by file name."""
        faults: set[str] = set()
        self._known = {path: self._labels(path, faults) for path in self._files(directory, faults)}
        for fault in sorted(faults - self._faults):
            self._complain(fault)
        self._faults = faults
        return [label for labels in self._known.values() for label in labels]

    def _files(self, directory: Path, faults: set[str]) -> list[Path]:
        try:
            paths = sorted(directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            faults.add(f"{_shown(directory)}: {error.strerror}")
            return [path for path in self._known if path.parent == directory]
        return [path for path in paths if not _an_editors(path) and _may_be_a_file(path)]

    def _labels(self, path: Path, faults: set[str]) -> list[str]:
        try:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
            text = content.decode("utf-8-sig")  # some editors begin a file with a mark
        except OSError as error:
            faults.add(f"{_shown(path)}: {error.strerror}")
        except UnicodeDecodeError:
            faults.add(f"{_shown(path)}: is not UTF-8")
        else:
            if len(content) <= LARGEST_FILE:
                return list(_lines(path, text, faults))
            faults.add(f"{_shown(path)}: is larger than {LARGEST_FILE} bytes")
        return self._known.get(path, [])


def _an_editors(path: Path) -> bool:
    return path.name.startswith(".") or path.name.endswith("~")


def _may_be_a_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # reading it will tell why
        return True


def _shown(path: Path) -> str:
    """Give a name that a log and a terminal can take: file names need not be UTF-8."""
    return str(path).encode(errors="backslashreplace").decode()


def _lines(path: Path, content: str, faults: set[str]) -> Iterator[str]:
    for number, line in enumerate(content.split("\n"), start=1):
        label = line.strip()
        if not label or label.startswith("#"):
            continue
        fault = label_fault(label)
        if fault is None:
            yield label
        else:
            faults.add(f"{_shown(path)}, line {number}: {fault}")
