"""`make run` in a terminal, with its state, app and addresses apart from everybody else's."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import msgspec

from dev import engine
from dev.images import build_busybox
from dev.run.state import prepare
from dev.run.trial import PAGE
from tests.support.forks import start_program
from tests.support.machine.terminal import END_SECONDS, Terminal, terminal

TOP = Path(__file__).parents[3]
READY = "Ctrl-C ends the registry"
READY_SECONDS = 120.0


class Run:
    """A running `make run`."""

    def __init__(self, screen: Terminal) -> None:
        self.screen = screen

    def wait_until_ready(self) -> None:
        """Wait until it has printed what to paste."""
        self.screen.wait_for(READY, within=READY_SECONDS)

    def curl_lines(self) -> list[str]:
        """Return the lines that it shows to paste."""
        text = self.screen.text().rpartition("Paste these")[2]
        return re.findall(r"^\s+(curl .*)$", text, re.MULTILINE)

    def command_lines(self) -> list[str]:
        """Return the lines for the command that it shows to paste."""
        return re.findall(r"^\s+(\S+/rollcall .*)$", self.screen.text(), re.MULTILINE)

    def paste(self, line: str) -> Any:
        """Run one in a shell in another folder, and return its decoded answer."""
        done = subprocess.run(self.shell(line), capture_output=True, check=True, cwd="/")
        return msgspec.json.decode(done.stdout)

    def shell(self, line: str) -> list[str]:
        """Return the command that runs a line where `make run` runs."""
        return ["bash", "-c", line]


@contextmanager
def running_make_run(var: Path, *, app: str, registry_port: str, agent_port: str) -> Iterator[Run]:
    """Type `make run`; at the end Ctrl-C is pressed, if it still runs."""
    options = [
        *("--var", str(var), "--app", app),
        *("--registry", f"127.0.0.1:{registry_port}", "--agent", f"127.0.0.1:{agent_port}"),
    ]
    command = ["make", "--no-print-directory", "run", f"RUN={shlex.join(options)}"]
    with terminal(command, folder=TOP, environment=os.environ) as screen:
        yield Run(screen)


@contextmanager
def forked_make_run(var: Path, *, app: str, registry_port: str, agent_port: str) -> Iterator[None]:
    """Start what `make run` starts, by its own settings, but fork both daemons."""
    state = prepare(
        var,
        registry=f"127.0.0.1:{registry_port}",
        agent=f"127.0.0.1:{agent_port}",
        engine=engine.url(os.environ),
    )
    with closing(docker.APIClient(base_url=state.engine, version="auto")) as client:
        build_busybox(client, f"rollcall-{app}", page=PAGE)
    with ExitStack() as stack:
        for name in ("registry", "agent"):
            log = var / f"{name}.log"
            command = [f"rollcall-{name}", "--config", str(var / f"{name}.yml")]
            program = start_program(command, stdout=log, stderr=log)
            stack.callback(program.wait, END_SECONDS)
            stack.callback(program.terminate)
        yield
