"""Tells what stays from what is about to change."""

import time
from collections.abc import Callable


class Steady:
    """Says whether the values that it is shown have stayed the same for some seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._value: object = None
        self._since = clock()

    def is_steady(self, value: object) -> bool:
        """Take the present value; return whether it has been the same for so long."""
        if value != self._value:
            self._value, self._since = value, self._clock()
        return self._clock() - self._since >= self._seconds
