"""Logs when the store becomes unreachable or unsafe or fails, and when it recovers."""

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from registry.store.protocol import StoreHealth


class ReachabilityLog:
    """Writes a line when the store becomes unreachable or unsafe, and one when it recovers.

    `health` returns how the store is, `failure` why it takes no heartbeats, None if it does.
    """

    def __init__(
        self,
        health: Callable[[], StoreHealth],
        log: FilteringBoundLogger,
        failure: Callable[[], str | None],
    ) -> None:
        self._health = health
        self._failure = failure
        self._is_failing = False
        self._log = log
        self._unreachable_for = 0.0
        self._risk = self._unchecked = ""

    async def look(self) -> None:
        """Look whether that has changed; called about once a second."""
        health = self._health()
        age = health.age
        if age and not self._unreachable_for:
            self._log.warning("store unreachable", store_age=round(age, 1), reason=health.problem)
        elif self._unreachable_for and not age:
            self._log.info("store reachable again", seconds=round(self._unreachable_for, 1))
        self._unreachable_for = age
        self._look_for_failure()
        self._look_for_risk(health.risk)
        self._look_for_unchecked(health.unchecked)

    def _look_for_failure(self) -> None:
        reason = None if self._unreachable_for else self._failure()
        if reason and not self._is_failing:
            self._log.error("store failing", reason=reason)
        elif self._is_failing and not reason:
            self._log.info("store works again")
        self._is_failing = bool(reason)

    def _look_for_risk(self, risk: str) -> None:
        if risk and risk != self._risk:
            self._log.error("store at risk", reason=risk)
        elif self._risk and not risk:
            self._log.info("store no longer at risk")
        self._risk = risk

    def _look_for_unchecked(self, unchecked: str) -> None:
        if unchecked and unchecked != self._unchecked:
            self._log.warning("store servers not checked", reason=unchecked)
        elif self._unchecked and not unchecked:
            self._log.info("store servers checked")
        self._unchecked = unchecked
