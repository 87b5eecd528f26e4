"""The hosts whose heartbeats were refused last, so that an operator sees them without the log."""

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from registry.nodes.context import RegistryContext

MAX_HOSTS = 100
# A host that is refused tries again at its next heartbeat. One that has not for so long is off, or
# has another name by now.
MAX_KEPT_SECONDS = 3600.0
MAX_HOSTNAME = 253
MAX_MESSAGE = 1000


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeat of a host that was refused; `at` is Unix time in seconds."""

    hostname: str
    at: int
    status: int
    message: str
    address: str


class _Refused(NamedTuple):
    refusal: Refusal
    at: float  # monotonic


class RefusedHosts:
    """The last refusal of each host, of the 100 hosts that were refused last.

    A host that was heard of again from the same address is no longer shown, once it has not been
    refused for as long as makes a node stale. Until then it is, since a clone behind the address of
    the real host is refused again and again. No host is shown that was not refused for an hour, or
    for that time if it is longer.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._directory = context.directory
        self._wall, self._monotonic, _ = context.clocks
        self._kept_seconds = kept_seconds = context.settings.freshness.stale_after
        self._max_kept_seconds = max(kept_seconds, MAX_KEPT_SECONDS)
        self._refused: OrderedDict[str, _Refused] = OrderedDict()

    def record(self, hostname: str, *, status: int, message: str, address: str) -> None:
        """Record that a heartbeat was refused now."""
        refusal = Refusal(
            hostname=hostname[:MAX_HOSTNAME],
            at=int(self._wall()),
            status=status,
            message=message[:MAX_MESSAGE],
            address=address,
        )
        self._refused[refusal.hostname] = _Refused(refusal, self._monotonic())
        self._refused.move_to_end(refusal.hostname)
        if len(self._refused) > MAX_HOSTS:
            self._refused.popitem(last=False)

    def latest(self) -> list[Refusal]:
        """Return the refusals that still matter, the newest first."""
        return [one.refusal for one in reversed(self._refused.values()) if not self._is_over(one)]

    def _is_over(self, refused: _Refused) -> bool:
        seconds = self._monotonic() - refused.at
        if seconds >= self._max_kept_seconds:
            return True
        if seconds < self._kept_seconds:
            return False
        entry = self._directory.entries.get(refused.refusal.hostname)
        return (
            entry is not None
            and entry.address == refused.refusal.address
            and entry.heard > refused.at
        )
