"""Handles Ctrl-C in a terminal."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
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
