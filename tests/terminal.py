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

    def read(self) -> None:
        """Take in what the program writes, to its end."""
        with suppress(OSError):  # EIO: the program's side is closed
            while data := os.read(self._keyboard, 65536):
                self._seen += data

    def text(self) -> str:
        """Give all that was written so far."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, words: str, *, within: float) -> str:
        """Wait until the words were written; give all that was."""

        def seen() -> str | None:
            text = self.text()
            return text if words in text else None  # also what is read only after its end

        return until(seen, f"{words!r} in {self}", within=within)

    def press(self, keys: str) -> None:
        """Press keys, such as ``CTRL_C``."""
        os.write(self._keyboard, keys.encode())

    def press_ctrl_c(self) -> int:
        """Press Ctrl-C and wait for the end; give the exit status."""
        self.press(CTRL_C)
        return self._process.wait(END_SECONDS)

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._process.pid

    def leave(self) -> None:
        """Have the program ended, by force if need be."""
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
    reader = Thread(target=opened.read)
    reader.start()
    try:
        yield opened
    finally:
        opened.leave()
        reader.join()
        os.close(keyboard)
