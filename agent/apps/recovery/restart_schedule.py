"""The schedule of starts without a request, with pauses that double."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic

from agent.apps.errors import AppBusy
from agent.apps.host import Host
from agent.apps.observer import ContainerObserver
from agent.apps.runner.job import Job
from agent.apps.runner.runner import OperationRunner, Requester
from agent.journal import OperationKind
from agent.model import App

AGENT = Requester(name="agent", wait_seconds=0, actor="agent")
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
        self, monotonic: Callable[[], float], *, longest: float = MAX_PAUSE_SECONDS
    ) -> None:
        self._monotonic = monotonic
        self._longest = longest
        self._attempts: dict[str, _Attempts] = {}

    def is_due(self, name: str) -> bool:
        """Record that an app is down; return whether its start is due."""
        now = self._monotonic()
        attempts = self._attempts.get(name)
        if attempts is None or self._is_over(attempts):
            attempts = self._attempts[name] = _Attempts(due=now + FIRST_PAUSE_SECONDS)
        elif attempts.well_since is not None:
            attempts.well_since, attempts.due = None, now + attempts.pause
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

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""
        self._attempts = {each: self._attempts[each] for each in self._attempts if each in names}

    def seconds_to_next(self, names: Collection[str], most: float) -> float:
        """Return the seconds until the next start is due, at most ``most``."""
        now = self._monotonic()
        waits = [
            attempts.due - now
            for name, attempts in self._attempts.items()
            if name in names and attempts.well_since is None
        ]
        return max(0.0, min([most, *waits]))


class ScheduledObserver(ContainerObserver):
    """Acts on apps on a schedule, and looks again at those that were busy when their job ends."""

    def __init__(
        self, host: Host, runner: OperationRunner, *, longest: float = MAX_PAUSE_SECONDS
    ) -> None:
        self._host = host
        self._runner = runner
        self._schedule = RestartSchedule(monotonic, longest=longest)
        self._waiting: set[str] = set()
        self._busy: set[str] = set()

    def is_due(self) -> bool:
        """Return whether the operation of an app that was busy has ended."""
        return any(not self._runner.is_busy(name) for name in self._busy)

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until it is to act on an app, ``most`` at most."""
        return self._schedule.seconds_to_next(self._waiting, most)

    def _begin(self) -> list[App]:
        """Begin to look at the apps; return those that are not busy."""
        by_name = {app.name: app for app in self._host.context.repository.existing()}
        self._schedule.keep(by_name)
        self._waiting = set()
        self._busy = {name for name in by_name if self._runner.is_busy(name)}
        return [app for name, app in by_name.items() if name not in self._busy]

    def _is_due(self, name: str) -> bool:
        """Return whether to act on an app now, which waits for a program of it.

        One for which the agent has no place is due again when an operation ends.
        """
        if not self._schedule.is_due(name):
            self._waiting.add(name)
            return False
        return self._runner.has_own_place(name)

    async def _attempt(
        self, name: str, operation: OperationKind, work: Callable[[Host, Job], Awaitable[None]]
    ) -> None:
        """Begin an operation of an app in the background."""
        self._schedule.attempted(name)
        self._busy.add(name)
        with suppress(AppBusy):
            await self._runner.start(name, operation, AGENT, partial(work, self._host))
