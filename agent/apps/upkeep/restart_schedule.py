"""The schedule of starts without a request, with pauses that double."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import monotonic as monotonic_time

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 300.0
# After an app was up for this long, and for as long as its last pause, the pauses start anew.
WELL_SECONDS = 10.0


@dataclass
class _Attempts:
    due: float
    pause: float = FIRST_PAUSE_SECONDS
    well_since: float | None = None


class RestartSchedule:
    """When to start each app again: after 1 s, then after a pause that doubles up to 5 min.

    ``longest`` is the longest pause in seconds.
    """

    def __init__(
        self, monotonic: Callable[[], float] = monotonic_time, *, longest: float = MAX_PAUSE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._longest = longest
        self._attempts: dict[str, _Attempts] = {}
        self._waiting = set[str]()

    def is_due(self, name: str) -> bool:
        """Record that an app is down; return whether its start is due. If not, it waits."""
        now = self._monotonic()
        attempts = self._attempts.get(name)
        if attempts is None or self._is_over(attempts):
            attempts = self._attempts[name] = _Attempts(due=now + FIRST_PAUSE_SECONDS)
        elif attempts.well_since is not None:
            attempts.well_since, attempts.due = None, now + attempts.pause
        if attempts.due > now:
            self._waiting.add(name)
        return attempts.due <= now

    def attempted(self, name: str) -> None:
        """Record that an app is started now, so that the next time comes after a longer pause."""
        attempts = self._attempts[name]
        attempts.pause = min(2 * attempts.pause, self._longest)
        attempts.due = self._monotonic() + attempts.pause

    def is_repeated(self, name: str) -> bool:
        """Return whether an app that is down was started before, and did not stay up."""
        return self._attempts[name].pause > FIRST_PAUSE_SECONDS

    def postpone(self, name: str, seconds: float) -> None:
        """Check an app again after the given seconds."""
        self._attempts[name].due = self._monotonic() + seconds
        self._waiting.add(name)

    def well(self, name: str) -> None:
        """Record that an app is up."""
        attempts = self._attempts.get(name)
        if attempts is None:
            return
        if attempts.well_since is None:
            attempts.well_since = self._monotonic()
        if self._is_over(attempts):
            del self._attempts[name]

    def _is_over(self, attempts: _Attempts) -> bool:
        needed = max(WELL_SECONDS, attempts.pause)
        since = attempts.well_since
        return since is not None and self._monotonic() - since >= needed

    def begin(self, names: Collection[str]) -> None:
        """Begin to look at these apps: forget all others, and which of these wait."""
        self._attempts = {each: self._attempts[each] for each in self._attempts if each in names}
        self._waiting = set()

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until a start that waits is due, at most ``most``."""
        now = self._monotonic()
        waits = [
            attempts.due - now
            for name, attempts in self._attempts.items()
            if name in self._waiting and attempts.well_since is None
        ]
        return max(0.0, min([most, *waits]))
