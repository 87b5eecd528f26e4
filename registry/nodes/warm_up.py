"""The time after a start in which the registry does not know all hosts yet."""

import math
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from registry.errors import StoreUnavailable, WarmingUp
from registry.store.protocol import NodeStore


class WarmUp:
    """Lasts for `seconds` after a start on a store that is new, was lost or was put back.

    Until then every host had the time to report. If the registry ends before that, the next start
    begins anew.
    """

    def __init__(
        self,
        *,
        store: NodeStore,
        seconds: float,
        monotonic: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._log = log
        self._has_failed = False
        self._seconds = seconds
        self._monotonic = monotonic
        self._ends: float | None = None

    def begin(self) -> None:
        """Begin, if the store does not continue; to be called as soon as it is loaded."""
        if not self._store.continues:
            self._ends = self._monotonic() + self._seconds

    @property
    def remaining_seconds(self) -> int:
        """How long it lasts from now, rounded up; 0 if it is over or was not needed."""
        if self._ends is None:
            return 0
        return max(0, math.ceil(self._ends - self._monotonic()))

    @property
    def reason(self) -> str | None:
        """Why targets are withheld, and for how long; None if they are not."""
        seconds = self.remaining_seconds
        if not seconds:
            return None
        return (
            "warming up: the store is new, or was put back from a copy, so not all hosts are known"
            f" yet; targets are withheld for {seconds} s"
        )

    def require_over(self) -> None:
        """Raise WarmingUp until it is over."""
        reason = self.reason
        if reason is not None:
            raise WarmingUp(reason, retry_after_seconds=self.remaining_seconds)

    async def finish(self) -> None:
        """Once it is over, let later starts continue the store; to be called now and then.

        If that fails, the next call tries it again. The first failure is logged, and its end.
        """
        if self._ends is None or self.remaining_seconds:
            return
        try:
            await self._store.confirm()
        except StoreUnavailable as error:
            if not self._has_failed:
                self._has_failed = True
                self._log.warning(
                    "the warm-up is over but cannot be recorded, so a restart begins it anew",
                    reason=str(error),
                )
            return
        if self._has_failed:
            self._log.info("the end of the warm-up is recorded now")
        self._ends = None
