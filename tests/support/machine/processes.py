"""The processes of this machine."""

from collections.abc import Iterator
from pathlib import Path


def command_lines() -> Iterator[tuple[int, list[str]]]:
    """Yield the id and the arguments of each process, as far as it does not end meanwhile.

    The source is /proc, which lists the processes of this PID namespace.
    """
    # Path.glob fails if a process ends between its listing and the look at its files.
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            content = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if content:  # a kernel thread or a zombie has none
            text = content.decode("utf-8", "replace").removesuffix("\0")
            yield int(folder.name), text.split("\0")
