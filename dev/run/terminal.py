"""The output of `make run`, and Ctrl-C in its terminal."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock
from types import FrameType


@contextmanager
def foreground() -> Iterator[None]:
    """Make this process the foreground process group while the context is open.

    A terminal sends Ctrl-C to the whole foreground group, and a make that receives it never exits
    with status 0. So this process leaves make's group. Suspending it (Ctrl-Z) is disabled, because
    no shell could resume it.
    """
    group = os.getpgrp()
    if group == os.getpid() or not _is_foreground(group):
        yield
        return
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    os.setpgid(0, 0)
    os.tcsetpgrp(sys.stdin.fileno(), os.getpgrp())
    try:
        yield
    finally:
        with suppress(OSError):  # the terminal may be closed
            os.tcsetpgrp(sys.stdin.fileno(), group)


def _is_foreground(group: int) -> bool:
    try:
        return sys.stdout.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == group
    except (OSError, ValueError):
        return False  # there is no terminal, or it is not ours


def stop_event() -> Event:
    """Return an event that is set by Ctrl-C, SIGTERM and the closing of the terminal."""
    stop = Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, request_stop)
    return stop


class Screen:
    """Prints whole lines from several threads; buffers those of the daemons until ``show_logs``.

    Args:
        stop: is set when the output is closed, as by ``make run | head``.

    """

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._lock = Lock()
        self._buffered: list[str] | None = []

    def say(self, text: str) -> None:
        """Print at once."""
        with self._lock:
            self._print(text)

    def log(self, line: str) -> None:
        """Print a daemon's line, or buffer it until ``show_logs``."""
        with self._lock:
            if self._buffered is None:
                self._print(line)
            else:
                self._buffered.append(line)

    def show_logs(self) -> None:
        """Print the buffered lines, and from now on each line as it comes."""
        with self._lock:
            for line in self._buffered or []:
                self._print(line)
            self._buffered = None

    def _print(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError:  # the reader has gone, as with `make run | head`
            self._stop.set()
            with suppress(OSError):
                sys.stdout.close()
