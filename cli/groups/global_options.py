"""What is said before the name of a command, and where the command runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from cli.output.form import Format


class ProcessIO(NamedTuple):
    """The environment of a process, and its streams."""

    environment: Mapping[str, str]
    out: TextIO
    err: TextIO


@dataclass
class GlobalOptions:
    """The options of all commands; those that print take `--output` behind their name, too."""

    process: ProcessIO
    context: str | None
    form: Format
    timeout_seconds: float
