"""The command `rollcall` within the test's process: what it prints, and its exit status."""

import asyncio
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from cli.main import run
from cli.output.output import ProcessIO
from tests.support.cli.home import home


class Ran(NamedTuple):
    """What a command left: its exit status, its standard output and its standard error."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        """Return what it printed, decoded; it must have ended with 0."""
        assert self.status == 0, self.err
        return msgspec.json.decode(self.out)

    def rows(self) -> list[list[str]]:
        """Return the rows of the table that it printed, without the titles, in words."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Rollcall:
    """Runs commands with contexts of the test's own."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.contexts = folder / "contexts.yml"
        self.environment = {
            **home(folder),
            "ROLLCALL_CONFIG": str(self.contexts),
            **(environment or {}),
        }

    def use(self, **context: Any) -> None:
        """Use a context with these fields."""
        self.contexts.touch(mode=0o600)
        found = {"current": "test", "contexts": {"test": context}}
        self.contexts.write_text(yaml.safe_dump(found))

    def run(self, *arguments: str) -> Ran:
        """Run a command, where no event loop runs."""
        out, err = StringIO(), StringIO()
        status = run(arguments, ProcessIO(self.environment, out, err))
        return Ran(status, out.getvalue(), err.getvalue())

    async def __call__(self, *arguments: str) -> Ran:
        """Run a command beside the servers of a test."""
        return await asyncio.to_thread(self.run, *arguments)
