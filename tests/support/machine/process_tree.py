"""The processes of this machine, and what descends from which."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process; ``state`` is the letter that the kernel shows."""

    pid: int
    parent: int
    state: str
    command: str


def processes() -> Iterator[Process]:
    """Yield all processes that can be seen."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            # The name before may hold blanks and parentheses.
            state, parent, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
            yield Process(int(folder.name), int(parent), state, command)


def with_descendants(pids: Collection[int]) -> set[int]:
    """Return these processes and all that descend from them."""
    found, everything = set(pids), list(processes())
    while new := {each.pid for each in everything if each.parent in found} - found:
        found |= new
    return found


def still_running(pids: Collection[int]) -> set[int]:
    """Return those of these processes that run; one that has ended may wait for its parent."""
    return {each.pid for each in processes() if each.pid in pids and each.state != "Z"}
