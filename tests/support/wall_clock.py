"""A wall clock that a test sets, for real daemons: the monotonic one goes on as it is."""

from pathlib import Path

import pytest


class WallClock:
    """The clock that daemons started from now on see."""

    def __init__(self, file: Path, environment: pytest.MonkeyPatch) -> None:
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        self._file = file
        self.set_by(0)
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("FAKETIME_TIMESTAMP_FILE", str(file))
        environment.setenv("FAKETIME_NO_CACHE", "1")
        environment.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")

    def set_by(self, seconds: int) -> None:
        """Set it so far from the true time."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{seconds:+d}")
        draft.replace(self._file)
