"""Files of operators: read as text, and written as a whole, for their owner alone."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.errors import WrongUsage
from runtime.durable import replacing

# In the place of a file, the standard input or the standard output.
STANDARD = Path("-")


def read_text(path: Path) -> str:
    """Return the text of a file, or of the standard input; WrongUsage."""
    try:
        return sys.stdin.read() if path == STANDARD else path.read_text("utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{path} is no text in UTF-8") from error


def absolute(path: Path) -> Path:
    """Return a path from the root; WrongUsage."""
    try:
        return path.absolute()
    except OSError as error:
        raise WrongUsage(f"{path}: the working directory is gone; give the whole path") from error


def user_folder(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the user: $VARIABLE, else ``default`` in the user's home; WrongUsage."""
    if folder := environment.get(variable):
        return Path(folder)
    try:
        return Path.home() / default
    except RuntimeError as error:
        raise WrongUsage(f"this user has no home directory: set HOME, or {variable}") from error


def make_folder_of(path: Path) -> None:
    """Make the folder of a file, for its owner alone, if it is missing; WrongUsage."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(path, error) from error


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole, readable by its owner alone; WrongUsage.

    A symbolic link stays, and the file that it names is replaced.
    """
    path = Path(os.path.realpath(path))
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> WrongUsage:
    return WrongUsage(f"{path} cannot be written: {error.strerror}")
