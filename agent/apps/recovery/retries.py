"""When what broke off and could not be settled is tried again."""

from collections.abc import Callable, Collection

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 60.0


class Retries:
    """Pauses between the attempts at each row of the journal: 1 s at first, doubling to 60 s."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._next: dict[str, tuple[float, float]] = {}

    def begin(self, change: str) -> bool:
        """Note an attempt; True when it is not the first."""
        _, pause = self._next.get(change, (0.0, FIRST_SECONDS))
        repeated = change in self._next
        self._next[change] = (self._monotonic() + pause, min(2 * pause, LONGEST_SECONDS))
        return repeated

    def waits(self, change: str) -> bool:
        """Whether it was tried, and is not to be tried again yet."""
        return change in self._next and self._next[change][0] > self._monotonic()

    def seconds_to_next(self, changes: Collection[str], most: float) -> float:
        """Give the seconds to the next attempt at one of these, at most so many."""
        now = self._monotonic()
        waits = [at - now for change, (at, _) in self._next.items() if change in changes]
        return max(0.0, min([most, *waits]))

    def keep(self, changes: Collection[str]) -> None:
        """Forget all others: they are settled."""
        self._next = {change: self._next[change] for change in self._next if change in changes}

    def retry_now(self) -> None:
        """Let all be tried at once: what stood in the way was the engine's being away."""
        self._next = {change: (0.0, pause) for change, (_, pause) in self._next.items()}
