"""What apps have used over the last hour, for charts."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from agent.engine.models import Sample

STEPS = 60
PERCENT_PER_NANOSECOND = 100 / 10**9
NOT_MEASURED = (None, None)


class AppUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each step, the oldest first; None where the app was not measured.

    ``cpu_percent`` is of one core, as the mean since the step before.
    """

    name: str
    cpu_percent: list[float | None]
    memory_bytes: list[int | None]


class UsageSamples(msgspec.Struct, frozen=True, kw_only=True):
    """What apps have used, by name. The last step was measured at ``until``, in Unix time.

    ``until`` is None before the first measurement. Steps are ``step_seconds`` apart, or a little
    more where the engine is slow.
    """

    step_seconds: float
    until: int | None
    apps: list[AppUsage]


class Measured(NamedTuple):
    """What a container of an app had used at a Unix time."""

    container_id: str
    at: float
    sample: Sample


Step = Mapping[str, Measured]


class UsageHistory:
    """The last 60 measurements of all apps, in memory."""

    def __init__(self, *, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._before: Step = {}
        self._steps: deque[Mapping[str, tuple[float | None, int | None]]] = deque(maxlen=STEPS)
        self._until: float | None = None

    def record(self, at: float, step: Step) -> None:
        """Record a measurement of apps, by their names."""
        self._steps.append(
            {
                name: (_cpu_percent(self._before.get(name), now), now.sample.memory_bytes)
                for name, now in step.items()
            }
        )
        self._before = step
        self._until = at

    def samples(self, names: Collection[str]) -> UsageSamples:
        """Return what the apps with these names have used."""
        return UsageSamples(
            step_seconds=self._step_seconds,
            until=None if self._until is None else int(self._until),
            apps=[self._of(name) for name in sorted(names)],
        )

    def _of(self, name: str) -> AppUsage:
        pairs = [step.get(name, NOT_MEASURED) for step in self._steps]
        return AppUsage(
            name=name,
            cpu_percent=[cpu_percent for cpu_percent, _ in pairs],
            memory_bytes=[memory_bytes for _, memory_bytes in pairs],
        )


def _cpu_percent(before: Measured | None, now: Measured) -> float | None:
    if before is None or before.container_id != now.container_id:
        return None
    seconds, spent = now.at - before.at, now.sample.cpu_ns - before.sample.cpu_ns
    if seconds <= 0 or spent < 0:  # the clock was set, or the container was started again
        return None
    return round(spent * PERCENT_PER_NANOSECOND / seconds, 1)
