"""Apps that end by themselves again and again, and are started again by the engine."""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from agent.model import rfc3339
from agent.state.events import Event

WINDOW_SECONDS = 600.0
# Fewer ends within that time are no loop.
LOOP_ENDS = 3
# The engine restarts an app about 60 times in that time at most.
MOST_ENDS = 100
# What ends later than this after a signal has outlived it; a stop also is an event of its own.
SIGNAL_SECONDS = 30.0
# After one of these by an operator, earlier ends say nothing about the app.
CHANGES = frozenset(
    {"create", "update", "rebuild", "rollback", "restore", "start", "restart", "stop", "delete"}
)


class _Ends:
    """When one app has ended by itself, as far as that counts."""

    def __init__(self) -> None:
        self.times = deque[float](maxlen=MOST_ENDS)
        self.exit_code: int | None = None
        self.is_loop = False
        self._changed = -inf
        self._signalled: float | None = None

    def add(self, event: Event) -> None:
        if event.actor == "engine" and event.action == "die":
            self._add_end(event)
        elif event.actor == "engine" and event.action == "kill":
            self._signalled = event.time
        elif is_change(event):
            self._changed = event.time
            self._keep(())

    def _add_end(self, event: Event) -> None:
        signalled, self._signalled = self._signalled, None
        is_ended = signalled is not None and event.time - signalled <= SIGNAL_SECONDS
        if is_ended or event.time <= self._changed:
            return
        self.forget_old(event.time)
        self.times.append(event.time)
        self.exit_code = event.exit_code
        self.is_loop = self.is_loop or len(self.times) >= LOOP_ENDS

    def forget_old(self, now: float) -> None:
        self._keep([each for each in self.times if _is_recent(each, now)])

    def _keep(self, times: Sequence[float]) -> None:
        self.times = deque(times, maxlen=MOST_ENDS)
        self.is_loop = self.is_loop and bool(times)

    def counts(self, now: float) -> bool:
        moments = (self._changed, self._signalled or -inf, *self.times)
        return any(_is_recent(each, now) for each in moments)


class Crashes:
    """Counts how often apps have ended by themselves, from their events.

    An app that did so ``LOOP_ENDS`` times within ``WINDOW_SECONDS`` crashes in a loop, until it has
    not done so for as long, or an operator has changed, started or stopped it. An end after a
    signal from outside is none by itself. ``on_loop`` is called when an app begins to do so,
    ``clock`` returns Unix time.
    """

    def __init__(self, *, on_loop: Callable[[], None], clock: Callable[[], float]) -> None:
        self._on_loop = on_loop
        self._clock = clock
        self._ends: dict[str, _Ends] = {}

    @property
    def remembered(self) -> int:
        """The number of apps of which something is remembered."""
        return len(self._ends)

    def add(self, events: Sequence[Event]) -> None:
        """Count events, in the order in which they were written."""
        begun = [event for event in events if self._begins_loop(event)]
        now = self._clock()
        self._ends = {name: ends for name, ends in self._ends.items() if ends.counts(now)}
        if begun:
            self._on_loop()

    def _begins_loop(self, event: Event) -> bool:
        ends = self._ends.setdefault(event.app, _Ends())
        before = ends.is_loop
        ends.add(event)
        return ends.is_loop and not before

    def message(self, name: str) -> str | None:
        """Return how often an app that crashes in a loop has ended, None for any other app."""
        ends = self._ends.get(name)
        if ends is None:
            return None
        ends.forget_old(self._clock())
        if not ends.is_loop:
            return None
        times = "once" if len(ends.times) == 1 else f"{len(ends.times)} times"
        code = "" if ends.exit_code is None else f" with exit code {ends.exit_code}"
        return (
            f"ended by itself {times} in the last {WINDOW_SECONDS / 60:.0f} minutes, last{code} at"
            f" {rfc3339(ends.times[-1])}; its logs may tell why"
        )


def is_change(event: Event) -> bool:
    """Return whether an operator has changed, started or stopped the app by this."""
    if event.actor == "engine":
        return event.action == "stop"
    return event.actor == "key" and event.outcome == "done" and event.action in CHANGES


def _is_recent(moment: float, now: float) -> bool:
    # A moment that is far ahead was measured before the clock was set back.
    return abs(now - moment) < WINDOW_SECONDS
