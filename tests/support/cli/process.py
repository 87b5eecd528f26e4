"""The operator's command `rollcall`, as a process with contexts of its own."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.support.cli.home import home
from tests.support.daemons import Daemon
from tests.support.forks import run_program

SECONDS = 120
# A job in the background of a shell ignores SIGINT, and so would what it starts.
WITH_SIGINT = ("env", "--default-signal=INT")


# The fixture ``run`` runs the command to its end, beside the servers of a test.
Run = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]


class CommandLine:
    """Runs `rollcall` with a file of contexts in a folder."""

    def __init__(self, folder: Path) -> None:
        self.contexts = folder / "contexts.yml"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ROLLCALL_")
        } | {**home(folder), "ROLLCALL_CONFIG": str(self.contexts)}

    @property
    def program(self) -> Path:
        """The console script."""
        return Path(sys.executable).with_name("rollcall")

    def run(
        self, *arguments: object, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, forked."""
        return run_program(
            [self.program, *map(str, arguments)],
            timeout=SECONDS,
            stdin=stdin,
            environment={**self.environment, **environment},
        )

    def ok(self, *arguments: object, stdin: str = "") -> str:
        """Run a command that has to succeed; return what it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def json(self, *arguments: object) -> Any:
        """Run a command that has to succeed; return its JSON."""
        return msgspec.json.decode(self.ok(*arguments, "-o", "json"))

    def login(self, registry: Daemon, *options: object) -> None:
        """Ask this registry from now on, with its key, which agents get, too."""
        same = ("--agent-key", "same")
        self.ok("login", registry.base_url, "--key-file", registry.key_path, *same, *options)
