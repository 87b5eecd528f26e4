"""What is remembered of heartbeats: how many came in the last hours, and which were rejected."""

from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from registry.nodes.context import RegistryContext
from registry.nodes.nodes import Nodes

STEP_SECONDS = 60
STEPS = 6 * 60
MAX_HOSTS = 100
# A host that is rejected tries again at its next heartbeat. One that has not for so long is off, or
# has another name by now.
MAX_KEPT_SECONDS = 3600.0
MAX_HOSTNAME = 253
MAX_MESSAGE = 1000


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


class HeartbeatSampler:
    """Takes a sample for each step, of counts that are kept anyway; in memory, for six hours."""

    def __init__(self, context: RegistryContext, nodes: Nodes) -> None:
        self._nodes = nodes
        self._wall = context.clocks.wall
        self._before: int | None = None
        self._until = int(self._wall())
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=STEPS)

    async def sample(self) -> None:
        """Take a sample; to be called at the beginning of the first step and at each end of one."""
        accepted, before = self._nodes.accepted, self._before
        self._before, self._until = accepted, int(self._wall())
        if before is not None:
            mean = round((accepted - before) / STEP_SECONDS, 3)
            self._samples.append((mean, *self._nodes.state_counts()))

    def samples(self) -> HeartbeatSamples:
        """Return what was sampled."""
        return HeartbeatSamples(
            step_seconds=STEP_SECONDS,
            until=self._until,
            heartbeats=[heartbeats for heartbeats, _, _ in self._samples],
            fresh=[fresh for _, fresh, _ in self._samples],
            stale=[stale for _, _, stale in self._samples],
        )


class RejectedHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeat of a host that was rejected; `at` is Unix time in seconds."""

    hostname: str
    at: int
    status: int
    message: str
    address: str


class _Rejected(NamedTuple):
    rejection: RejectedHeartbeat
    at: float  # monotonic


class RejectedHeartbeats:
    """The last rejection of each host, of the 100 hosts that were rejected last.

    A host that was seen again from the same address is no longer shown, once it has not been
    rejected for as long as makes a node stale. Until then it is, since a clone behind the address
    of the real host is rejected again and again. No host is shown that was not rejected for an
    hour, or for that time if it is longer.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._directory = context.directory
        self._wall, self._monotonic, _ = context.clocks
        self._kept_seconds = kept_seconds = context.settings.freshness.stale_after
        self._max_kept_seconds = max(kept_seconds, MAX_KEPT_SECONDS)
        self._rejected: OrderedDict[str, _Rejected] = OrderedDict()

    def record(self, hostname: str, *, status: int, message: str, address: str) -> None:
        """Record that a heartbeat was rejected now."""
        rejection = RejectedHeartbeat(
            hostname=hostname[:MAX_HOSTNAME],
            at=int(self._wall()),
            status=status,
            message=message[:MAX_MESSAGE],
            address=address,
        )
        self._rejected[rejection.hostname] = _Rejected(rejection, self._monotonic())
        self._rejected.move_to_end(rejection.hostname)
        if len(self._rejected) > MAX_HOSTS:
            self._rejected.popitem(last=False)

    def latest(self) -> list[RejectedHeartbeat]:
        """Return the rejections that still matter, the newest first."""
        return [
            one.rejection for one in reversed(self._rejected.values()) if not self._is_over(one)
        ]

    def _is_over(self, rejected: _Rejected) -> bool:
        seconds = self._monotonic() - rejected.at
        if seconds >= self._max_kept_seconds:
            return True
        if seconds < self._kept_seconds:
            return False
        entry = self._directory.entries.get(rejected.rejection.hostname)
        return (
            entry is not None
            and entry.address == rejected.rejection.address
            and entry.heard > rejected.at
        )
