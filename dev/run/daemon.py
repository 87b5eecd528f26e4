"""Runs a registry or an agent as a child process of `make run`."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Thread

from config.address import listen_address
from dev.processes import describe_exit, end, start
from dev.waiting import WaitTimeoutError, until

START_SECONDS = 30.0
ANSWER_SECONDS = 5.0
STOP_SECONDS = 60.0


class DaemonError(Exception):
    """A daemon cannot start, or ended by itself; the text says which one and why."""


class DaemonProcess:
    """A running daemon: ``registry`` or ``agent``, which listens at ``listen`` (HOST:PORT)."""

    def __init__(self, *, name: str, listen: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self._listen = listen
        self._process = process

    def check(self) -> None:
        """Raise DaemonError if the daemon has ended."""
        status = self._process.poll()
        if status is not None:
            raise DaemonError(f"the {self.name} {describe_exit(status)}; see its log above")

    def wait_until_healthy(self, stop: Event) -> None:
        """Wait until /healthz answers 200.

        Raises:
            DaemonError: the daemon ended, or was not healthy in time.
            StopRequestedError: ``stop`` was set.

        """
        self._wait_until(self.is_healthy, stop)

    def wait_until_it_answers(self, stop: Event) -> None:
        """Wait until /healthz answers anything: an agent without an engine is not healthy.

        Raises:
            DaemonError: the daemon ended, or did not answer in time.
            StopRequestedError: ``stop`` was set.

        """
        self._wait_until(lambda: self._health() is not None, stop)

    def is_healthy(self) -> bool:
        """Return whether /healthz answers 200; DaemonError if the daemon has ended."""
        return self._health() == HTTPStatus.OK

    def _wait_until(self, condition: Callable[[], bool], stop: Event) -> None:
        try:
            until(condition, "its first answer", within=START_SECONDS, stop=stop)
        except WaitTimeoutError as error:
            raise DaemonError(f"the {self.name} does not start: {error}") from error

    def _health(self) -> int | None:
        """Return the status of /healthz, asked without a proxy; None without an answer."""
        self.check()
        host, port = listen_address(self._listen)
        with closing(HTTPConnection(host, port, timeout=ANSWER_SECONDS)) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status
            except (OSError, HTTPException):
                return None


@contextmanager
def running(
    name: str, *, settings: Path, listen: str, log: Callable[[str], None]
) -> Iterator[DaemonProcess]:
    """Run a daemon's console script while the context is open.

    Args:
        name: ``registry`` or ``agent``.
        settings: the settings file.
        listen: HOST:PORT, as in the settings.
        log: called with each line that the daemon writes.

    Raises:
        DaemonError: another program listens at the address.

    """
    _check_address_free(name, listen)
    program = Path(sys.executable).with_name(f"rollcall-{name}")
    process = start([program, "--config", settings], output=subprocess.PIPE)
    lines = Thread(target=_forward_output, args=[name, process, log])
    lines.start()
    try:
        yield DaemonProcess(name=name, listen=listen, process=process)
    finally:
        if not end(process, within=STOP_SECONDS):
            log(f"{name:8} | killed: it did not end within {STOP_SECONDS:g} seconds")
        lines.join()


def _forward_output(
    name: str, process: subprocess.Popen[bytes], log: Callable[[str], None]
) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            log(f"{name:8} | {line.decode(errors='replace').rstrip()}")


def _check_address_free(name: str, listen: str) -> None:
    host, port = listen_address(listen)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise DaemonError(
                f"the {name} cannot listen on {listen}: {error.strerror} (`ss -ltnp` shows who"
                " does); end that, or use other ports and a folder of their own: make run"
                ' RUN="--var var/other --registry 127.0.0.1:7755 --agent 127.0.0.1:7756"'
            ) from error
