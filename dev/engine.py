"""Finds the local Docker Engine, and starts one if none runs."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event

from dev.processes import end, start
from dev.waiting import WaitTimeoutError, until

SOCKET = Path("/var/run/docker.sock")
PID_FILES = {
    Path("/var/run/docker.pid"): "dockerd",
    Path("/var/run/docker/containerd/containerd.pid"): "containerd",
}
DEFAULT_URL = f"unix://{SOCKET}"
SYSTEMD = Path("/run/systemd/system")  # exists if systemd is process 1
PING_SECONDS = 5.0
START_SECONDS = 60.0
STOP_SECONDS = 60.0


class EngineError(Exception):
    """No engine runs, and none can be started; the text says why."""


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PING_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def system_path(environ: Mapping[str, str]) -> str:
    """Return the search path with the directories of system programs, which some shells lack."""
    return f"{environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


def url(environ: Mapping[str, str]) -> str:
    """Return the URL of the engine: that of ``DOCKER_HOST`` if it is local, else the default."""
    chosen = environ.get("DOCKER_HOST", "")
    return chosen if chosen.startswith("unix:///") else DEFAULT_URL


def socket_path(url: str) -> Path:
    """Return the path of the socket at ``unix:///PATH``."""
    return Path(url.removeprefix("unix://"))


def is_default(url: str) -> bool:
    """Return whether this is where a started engine listens: /var/run is a link to /run."""
    return socket_path(url).resolve() == SOCKET.resolve()


def ping(url: str) -> bool:
    """Return whether an engine at ``unix:///PATH`` is well; OSError if it cannot be asked."""
    with closing(_UnixConnection(str(socket_path(url)))) as connection:
        try:
            connection.request("GET", "/_ping")
            return connection.getresponse().status == HTTPStatus.OK
        except HTTPException:
            return False


def responds(url: str) -> bool:
    """Return whether an engine answers at ``unix:///PATH``."""
    try:
        return ping(url)
    except OSError:
        return False


def program(name: str) -> str | None:
    """Return the path of a program of the system, such as dockerd; None if it is not installed."""
    return shutil.which(name, path=system_path(os.environ))


@contextmanager
def running(url: str, *, log: Path, stop: Event | None = None) -> Iterator[None]:
    """Start an engine if none answers at the URL, and end that one when the context is closed.

    Under systemd the engine's own unit is started, and left running.

    Args:
        url: the engine's address; an engine can be started at the default one only.
        log: the file for the output of a started engine.
        stop: an event that cancels the start.

    Raises:
        EngineError: no engine answers, and none can be started.
        StopRequestedError: ``stop`` was set before the engine answered.

    """
    process = None if responds(url) else _start(url, log)
    try:
        if process:
            _wait(process, url, log, stop)
        yield
    finally:
        if process:
            end(process, within=STOP_SECONDS)


def _start(url: str, log: Path) -> subprocess.Popen[bytes]:
    if not is_default(url):
        raise EngineError(f"no Docker Engine answers at {url}")
    if os.geteuid() != 0:
        raise EngineError("no Docker Engine answers, and only root can start one")
    if SYSTEMD.is_dir():
        command = ["systemctl", "start", "docker.service"]
    elif dockerd := program("dockerd"):
        command = [dockerd]
        remove_stale_pid_files(PID_FILES)
    else:
        raise EngineError("no Docker Engine answers, and dockerd is not installed")
    with log.open("wb") as output:
        return start(command, output=output)


def remove_stale_pid_files(pid_files: Mapping[Path, str]) -> None:
    """Remove the pid files of programs that were killed; ``pid_files`` maps them to their names.

    dockerd and containerd do not start while a process with the pid in their file exists, even if
    it is another program's by now, or a zombie.
    """
    for file, program in pid_files.items():
        with suppress(OSError, ValueError):
            if not _runs(int(file.read_text()), program):
                file.unlink()


def _runs(pid: int, program: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name == program and not rest.strip().startswith(("Z", "X"))


def _wait(process: subprocess.Popen[bytes], url: str, log: Path, stop: Event | None) -> None:
    def started_or_exited() -> bool:
        return responds(url) or bool(process.poll())

    try:
        until(
            started_or_exited, "the Docker Engine's first answer", within=START_SECONDS, stop=stop
        )
    except WaitTimeoutError as error:
        raise EngineError(f"{error}; see {log}") from error
    if process.poll():
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise EngineError(f"the Docker Engine did not start: {last or process.returncode} ({log})")
