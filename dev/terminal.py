"""Ctrl-C, and who in the terminal gets it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType


@contextmanager
def foreground() -> Iterator[None]:
    """Take the terminal for as long as this lasts.

    A terminal sends Ctrl-C to the whole group in front, and make, once it got it, never ends with
    status 0. So this process goes to the front alone. It cannot be suspended then: nobody would
    be there to wake it.
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
        return False  # no terminal, or another one


def stop_event() -> Event:
    """Give an event that Ctrl-C, SIGTERM and a closed terminal set."""
    stop = Event()

    def request_stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, request_stop)
    return stop
