"""Unpacks archives that tests keep."""

import subprocess
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar into a folder that is made.

    By `tar`: the oldest Python that runs the tests has no filters for what it unpacks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder], check=True)
