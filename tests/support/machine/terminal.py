"""A terminal with a program in it, to press keys in and to read from."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

from dev.waiting import until

CTRL_C = "\x03"
END_SECONDS = 90.0


class Terminal:
    """A program that runs in a terminal of its own."""

    def __init__(self, *, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self._process = process
        self._keyboard = keyboard
        self._seen = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """Take in what is written, until nothing has the terminal open any more."""
        with suppress(OSError):  # EIO: the program's side is closed
            while data := os.read(self._keyboard, 65536):
                self._seen += data

    def text(self) -> str:
        """Return all that was written so far."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, words: str, *, within: float) -> str:
        """Wait until the words are written, and return all that is written by then.

        Fails as soon as they cannot come any more: the program has ended, and all is read.
        """

        def seen() -> str | None:
            all_read = not self._reader.is_alive()  # to be known before the text is looked at
            text = self.text()
            assert words in text or not all_read, f"it ended without {words!r}:\n{text}"
            return text if words in text else None

        return until(seen, f"{words!r} in {self}", within=within)

    def press(self, keys: str) -> None:
        """Press keys, such as ``CTRL_C``."""
        os.write(self._keyboard, keys.encode())

    def press_ctrl_c(self) -> int:
        """Press Ctrl-C, wait for the end, and return the exit status."""
        self.press(CTRL_C)
        return self._process.wait(END_SECONDS)

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._process.pid

    def close(self) -> None:
        """End the program, by SIGKILL if necessary."""
        try:
            self._end()
        finally:
            self._reader.join()
            os.close(self._keyboard)

    def _end(self) -> None:
        if self._process.poll() is None:
            self.press(f"{CTRL_C}\nexit\n")  # the latter is for a shell
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"Ctrl-C did not end it:\n{self.text()}") from None


@contextmanager
def terminal(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
) -> Iterator[Terminal]:
    """Run a command in a terminal that it controls, as a login shell would."""
    keyboard, screen = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        cwd=folder,
        env=dict(environment),
    )
    os.close(screen)
    opened = Terminal(process=process, keyboard=keyboard)
    try:
        yield opened
    finally:
        opened.close()
