"""Which registries share a store: those that have written to it lately."""

from collections.abc import Callable
from typing import NamedTuple

from registry.store.clock import AgeClock
from registry.store.protocol import Member

# Each registry writes twice a second. One that has not for so long has ended, or is cut off.
FORGOTTEN_SECONDS = 60.0
MAX_MEMBERS = 100


class _Seen(NamedTuple):
    name: str
    uptime: float
    denied: str
    expected: str


class Members:
    """The registries that share a store, by the names of their runs, of which one is `own`.

    `uptime` returns the seconds that they count together.
    """

    def __init__(self, *, own: str, uptime: Callable[[], float]) -> None:
        self._own = own
        self._uptime = uptime
        self._seen: dict[str, _Seen] = {}

    def saw(self, run: str, name: str, uptime: float, *, denied: str, expected: str) -> None:
        """Record that a registry wrote when the count was `uptime`, with digests of its lists."""
        if run not in self._seen and len(self._seen) >= MAX_MEMBERS:
            self._forget()
        self._seen[run] = _Seen(name, uptime, denied, expected)

    def listed(self) -> list[Member]:
        """Return those that have written lately, by name."""
        self._forget()
        now = self._uptime()
        members = [
            Member(
                name=seen.name,
                run=run,
                own=run == self._own,
                seen_seconds=round(max(0.0, now - seen.uptime), 1),
                denied=seen.denied,
                expected=seen.expected,
            )
            for run, seen in self._seen.items()
        ]
        return sorted(members, key=lambda member: (member.name, member.run))

    def _forget(self) -> None:
        """Forget those that have not written for long."""
        oldest = self._uptime() - FORGOTTEN_SECONDS
        self._seen = {run: seen for run, seen in self._seen.items() if seen.uptime >= oldest}


class Uptime:
    """A count of seconds that registries share; they differ by the delay of messages.

    It advances while at least one registry runs and can write. Each registry writes its count into
    its messages, and one that is behind continues from the count that it receives. Its own clock
    advances with it only by the time for which the clock was held, so that a count that began on
    another registry makes no node older.
    """

    def __init__(self, clock: AgeClock) -> None:
        self._clock = clock
        self._offset = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self._clock() + self._offset

    def begin(self, uptime: float) -> None:
        """Continue from the count in the bucket, at the start."""
        self._offset = uptime - self._clock()

    def saw(self, uptime: float) -> None:
        """Record the count of another registry."""
        behind = uptime - self()
        if behind > 0:
            self._offset += behind - self._clock.make_up(behind)
