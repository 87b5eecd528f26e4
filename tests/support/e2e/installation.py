"""What ``make install`` lays out."""

import subprocess
from pathlib import Path

from dev.processes import with_network

TOP = Path(__file__).parents[3]


def install(folder: Path) -> None:
    """Lay out what gets installed in a folder, for an operator whose files nobody else may read."""
    command = ["make", "-C", str(TOP), "install", f"DESTDIR={folder}"]
    subprocess.run(with_network(command), check=True, umask=0o077)
