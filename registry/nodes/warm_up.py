"""The time after a start in which the registry does not know all hosts yet."""

import math

from registry.errors import StoreUnavailable, TooManyConflicts, WarmingUp
from registry.nodes.context import RegistryContext
from registry.store.protocol import as_shared


class WarmUp:
    """Lasts for `seconds` after a start on a store that is new, was lost or was restored.

    Until then every host had the time to report. If the registry ends before that, the next start
    begins anew. It ends early if another registry on the same store says that it is over.

    If a store is lost while the registry runs, no targets are withheld: all nodes are in memory.
    Later starts withhold them until every host had the time to report again.
    """

    def __init__(self, context: RegistryContext) -> None:
        self._store = context.store
        self._shared = as_shared(context.store)
        self._continued = True
        self._log = context.log
        self._has_failed = False
        self._seconds = context.settings.warm_up
        self._monotonic = context.clocks.monotonic
        self._ends: float | None = None
        self._withholds = False

    @property
    def _continues(self) -> bool:
        """Whether later starts continue the store; of a shared one, another registry may say so."""
        return self._continued if self._shared is None else self._shared.health.continues

    def begin(self, *, continues: bool) -> None:
        """Begin, if the store does not continue; to be called as soon as it is loaded."""
        self._continued = continues
        if not continues:
            self._ends = self._monotonic() + self._seconds
            self._withholds = True

    @property
    def remaining_seconds(self) -> int:
        """How long it lasts from now, rounded up; 0 if it is over or was not needed."""
        return self._seconds_left() if self._withholds else 0

    def _seconds_left(self) -> int:
        if self._ends is None or self._continues:
            return 0
        return max(0, math.ceil(self._ends - self._monotonic()))

    @property
    def reason(self) -> str | None:
        """Why targets are withheld, and for how long; None if they are not."""
        seconds = self.remaining_seconds
        if not seconds:
            return None
        return (
            "warming up: the store is new, or was restored from a copy, so not all hosts are known"
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
        if not self._continues and self._ends is None:
            self._ends = self._monotonic() + self._seconds
        if self._ends is None or self._seconds_left():
            return
        try:
            if not self._continues:
                await self._store.confirm()
                self._continued = True
        except (StoreUnavailable, TooManyConflicts) as error:
            if not self._has_failed:
                self._has_failed = True
                self._log.warning(
                    "the warm-up is over but cannot be recorded, so a restart begins it anew",
                    reason=str(error),
                )
            return
        if self._has_failed:
            self._has_failed = False
            self._log.info("the end of the warm-up is recorded now")
        self._ends = None
        self._withholds = False
