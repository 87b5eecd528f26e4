"""The console scripts in processes that are forked from one that has imported them.

Most of the processor time of a start goes to imports, and tests start the daemons hundreds of
times. `multiprocessing` runs the server that forks: one for each worker of pytest, begun at the
first start, with neither threads nor an event loop. What a test says about the start of a program
itself, or about its memory, needs the console script instead (mark `console_script`).
"""

import gc
import importlib
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn, TypeAlias

import cli.commands
from config.logs import configure_logging
from tests.support.run.answers import DAEMONS, FILE, record_daemon

MODULES = {
    "rollcall": "cli.main",
    "rollcall-agent": "agent.main",
    "rollcall-registry": "registry.main",
}
NOTHING = Path(os.devnull)
NO_FORKS = "ROLLCALL_NO_FORKS"  # the variable with which each console script is started
# What `rollcall` imports only once it is used.
COMMANDS = tuple(
    each.name
    for each in pkgutil.walk_packages(cli.commands.__path__, "cli.commands.")
    if not each.ispkg
)


def context() -> ForkServerContext:
    """Return what forks from the server."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([__name__, *MODULES.values(), *COMMANDS])
    return found


class ForkedProgram:
    """A running console script, with the methods of ``subprocess.Popen`` that tests use.

    It has the working directory of this process.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        stdout: Path,
        stderr: Path,
        stdin: Path = NOTHING,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; its output is appended to the files.

        Args:
            command: the name of the console script or its path, and its arguments.
            stdout: the file for its standard output.
            stderr: the file for its standard error; both may be the same.
            stdin: the file that is its standard input.
            environment: its environment, else that of this process.

        """
        self._command = [str(part) for part in command]
        # A daemon in the sense of multiprocessing: it is ended with this process.
        self._process = context().Process(
            target=_run,
            args=(
                self._command,
                (stdin, stdout, stderr),
                dict(os.environ if environment is None else environment),
                Path.cwd(),
                os.environ.get(FILE),
            ),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs after ``timeout`` seconds.

        """
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self._process.kill()


Program: TypeAlias = ForkedProgram | subprocess.Popen[bytes]


def start_program(
    command: Sequence[str | Path],
    *,
    stdout: Path,
    stderr: Path,
    stdin: Path = NOTHING,
    environment: Mapping[str, str] | None = None,
    forked: bool = True,
) -> Program:
    """Start a command whose output is appended to the files; fork it, if ``forked`` says so.

    Libraries of LD_PRELOAD are loaded where a program begins, so nothing is forked with them.
    """
    if forked and not {"LD_PRELOAD", NO_FORKS} & os.environ.keys():
        return ForkedProgram(
            command, stdout=stdout, stderr=stderr, stdin=stdin, environment=environment
        )
    with stdin.open("rb") as given, stdout.open("ab") as output, stderr.open("ab") as errors:
        return subprocess.Popen(command, stdin=given, stdout=output, stderr=errors, env=environment)


def run_program(
    command: Sequence[str | Path],
    *,
    timeout: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a console script to its end, forked; return its exit status and its output.

    Raises:
        subprocess.TimeoutExpired: it did not end within ``timeout`` seconds, and was killed.

    """
    with TemporaryDirectory() as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        given = Path(folder, "stdin")
        given.write_text(stdin)
        program = start_program(
            command, stdout=stdout, stderr=stderr, stdin=given, environment=environment
        )
        try:
            status = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        return subprocess.CompletedProcess(
            command, status, stdout=stdout.read_text(), stderr=stderr.read_text()
        )


def _run(
    command: Sequence[str],
    streams: tuple[Path, Path, Path],
    environment: Mapping[str, str],
    folder: Path,
    answers: str | None,
) -> None:
    for descriptor, file in enumerate(streams):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT if descriptor else os.O_RDONLY
        opened = os.open(file, flags | os.O_CLOEXEC, 0o666)
        os.dup2(opened, descriptor)
        os.close(opened)
    become(command, environment, folder, answers)


def become(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, answers: str | None
) -> NoReturn:
    """Become the program, in the forked process; a daemon records its answers in that file."""
    # A job in the background of a shell ignores SIGINT, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()  # what was imported is shared with the server; the collector would copy its pages
    # multiprocessing has closed the first one, and the others remember what their files could.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    defaults = configure_logging.__kwdefaults__
    assert defaults is not None
    defaults["stream"] = sys.stderr  # else that of the import
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(command)
    name = Path(command[0]).name
    main = importlib.import_module(MODULES[name]).main
    daemon = name.removeprefix("rollcall-")
    if daemon in DAEMONS:
        record_daemon(daemon, answers)
    sys.exit(main())
