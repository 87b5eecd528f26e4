"""How the containers of apps have run: restarts, last ends, and crash loops."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from math import inf

import msgspec

from agent.engine.models import Container, ContainerEvent, InspectedContainer
from agent.model import rfc3339
from agent.state.history import Event

WINDOW_SECONDS = 600.0
# Fewer ends within that time are no loop.
LOOP_ENDS = 3
# The engine restarts an app about 60 times in that time at most.
MOST_ENDS = 100
# What ends later than this after a signal has outlived it; a stop also is an event of its own.
SIGNAL_SECONDS = 30.0
# After one of these by an operator, earlier ends do not count.
CHANGES = frozenset(
    {"create", "update", "rebuild", "rollback", "restore", "start", "restart", "stop", "delete"}
)
# An inspection and an event of one end differ by less.
SAME_END_SECONDS = 5.0
# An inspection and an event of one start differ by less.
SAME_START_SECONDS = 0.5


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


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the runs of a container.

    Attributes:
        restarts: How often engine and agent have started it again, since it was made or an operator
            started it.
        finished_at: When it ended last, in RFC 3339, None if it did not.
        exit_code: With which code, None if that is not known.

    """

    restarts: int = 0
    finished_at: str | None = None
    exit_code: int | None = None


class _Runs(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of an app's container, whose id is None as long as it was not inspected.

    ``by_engine`` are the restarts since the agent's last start of it, ``before`` those until then.
    ``started_at`` is not known after an event of a start or an end, which was at ``turned_at``,
    until the next inspection.
    """

    container_id: str | None = None
    before: int = 0
    by_engine: int = 0
    finished_at: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    turned_at: float = 0.0

    def restarted_by_agent(self) -> "_Runs":
        return msgspec.structs.replace(self, before=self.before + self.by_engine + 1, by_engine=0)

    def ended(self, moment: float, exit_code: int | None) -> "_Runs":
        finished_at = self.finished_at
        if finished_at is not None:
            later = moment - _seconds(finished_at)
            if later < -SAME_END_SECONDS:
                return self
            if later <= SAME_END_SECONDS:  # the engine's own time is the more precise one
                return msgspec.structs.replace(self, exit_code=exit_code)
        text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
        finished_at = text.replace("+00:00", "Z")
        return msgspec.structs.replace(self, finished_at=finished_at, exit_code=exit_code)

    def inspected(self, container: InspectedContainer) -> "_Runs":
        before, finished_at = self.before, container.finished_at
        if self.container_id is not None and container.restarts < self.by_engine:
            before += self.by_engine  # somebody has started it, and the engine counts anew
        started_at = container.started_at
        if started_at is not None and _seconds(started_at) < self.turned_at - SAME_START_SECONDS:
            started_at = None  # the inspection was overtaken by the event
        return _Runs(
            started_at=started_at,
            turned_at=self.turned_at,
            container_id=container.id,
            before=before,
            by_engine=container.restarts,
            finished_at=finished_at,
            exit_code=self._exit_code(finished_at, container.exit_code),
        )

    def _exit_code(self, finished_at: str | None, exit_code: int | None) -> int | None:
        if exit_code is not None or finished_at is None or self.finished_at is None:
            return exit_code
        is_same = abs(_seconds(finished_at) - _seconds(self.finished_at)) <= SAME_END_SECONDS
        return self.exit_code if is_same else None


class Runs:
    """Counts the restarts of apps, and keeps their last ends: the engine's list has neither.

    They come from the events of apps, those of the engine, and inspections.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Runs] = {}

    def load(self, events: Iterable[Event]) -> None:
        """Take the events of before the agent's start, in their order."""
        for event in events:
            if event.actor == "engine" and event.action == "die":
                self._runs[event.app] = self._of(event.app).ended(event.time, event.exit_code)
            elif event.actor == "engine" and event.action == "start":
                runs = self._of(event.app)
                self._runs[event.app] = msgspec.structs.replace(runs, by_engine=runs.by_engine + 1)
            else:
                self.add((event,))

    def add(self, events: Collection[Event]) -> None:
        """Take events that were written; inspections count the restarts by the engine."""
        for event in events:
            runs = self._of(event.app)
            if event.actor == "agent" and event.action in ("start", "restart"):
                if event.outcome == "done":
                    self._runs[event.app] = runs.restarted_by_agent()
            elif event.action == "delete" and event.outcome == "done":
                self._runs.pop(event.app, None)
            elif event.actor == "key" and is_change(event):
                self._runs[event.app] = msgspec.structs.replace(runs, before=0, by_engine=0)

    def happened(self, event: ContainerEvent) -> None:
        """Take an event of the container that an app has now, also one that the agent caused."""
        if event.action not in ("start", "die"):
            return
        runs = msgspec.structs.replace(
            self._of_container(event.app, event.container_id),
            started_at=None,
            turned_at=event.time,
        )
        is_end = event.action == "die"
        self._runs[event.app] = runs.ended(event.time, event.exit_code) if is_end else runs

    def inspected(self, app: str, container: InspectedContainer) -> None:
        """Take an inspection of an app's container."""
        self._runs[app] = self._of_container(app, container.id).inspected(container)

    def last(self, app: str, container: Container | None) -> LastRun:
        """Return what is known of the runs of an app's container."""
        runs = self._of_container(app, container.id if container is not None else None)
        return LastRun(
            restarts=runs.before + runs.by_engine,
            finished_at=runs.finished_at,
            exit_code=runs.exit_code,
        )

    def started_at(self, app: str, container_id: str | None) -> float | None:
        """Return the Unix time at which a container of an app began its run, None if not known."""
        started_at = self._of_container(app, container_id).started_at
        return None if started_at is None else _seconds(started_at)

    def _of(self, app: str) -> _Runs:
        return self._runs.get(app, _Runs())

    def _of_container(self, app: str, container_id: str | None) -> _Runs:
        runs = self._of(app)
        return runs if runs.container_id in (None, container_id) else _Runs()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
