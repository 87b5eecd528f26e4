"""The output of `make run`."""

import sys
from contextlib import suppress
from threading import Event, Lock


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
