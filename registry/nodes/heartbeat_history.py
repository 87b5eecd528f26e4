"""How many heartbeats came and how many nodes were fresh and stale, over the last hours."""

from collections import deque
from collections.abc import Callable

import msgspec

STEP_SECONDS = 60
STEPS = 6 * 60


class HeartbeatSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each step, the oldest first; the last step ended at `until` (Unix time).

    `heartbeats` are those accepted a second, as the mean of the step. `fresh` and `stale` are the
    numbers of nodes at its end.
    """

    step_seconds: int
    until: int
    heartbeats: list[float]
    fresh: list[int]
    stale: list[int]


class HeartbeatHistory:
    """Takes a sample for each step, of counts that are kept anyway; in memory, for six hours.

    `accepted` returns how many heartbeats were accepted since the start, `states` how many nodes
    are fresh and stale.
    """

    def __init__(
        self,
        *,
        accepted: Callable[[], int],
        states: Callable[[], tuple[int, int]],
        wall: Callable[[], float],
    ) -> None:
        self._accepted = accepted
        self._states = states
        self._wall = wall
        self._before: int | None = None
        self._until = int(wall())
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=STEPS)

    async def sample(self) -> None:
        """Take a sample; to be called at the beginning of the first step and at each end of one."""
        accepted, before = self._accepted(), self._before
        self._before, self._until = accepted, int(self._wall())
        if before is not None:
            mean = round((accepted - before) / STEP_SECONDS, 3)
            self._samples.append((mean, *self._states()))

    def samples(self) -> HeartbeatSamples:
        """Return what was sampled."""
        return HeartbeatSamples(
            step_seconds=STEP_SECONDS,
            until=self._until,
            heartbeats=[heartbeats for heartbeats, _, _ in self._samples],
            fresh=[fresh for _, fresh, _ in self._samples],
            stale=[stale for _, _, stale in self._samples],
        )
