"""The log of when a store that several registries share is lost or at risk, and when it is not."""

from structlog.typing import FilteringBoundLogger

from registry.store.protocol import NodeStore


class ReachabilityLog:
    """Writes a line when the store is lost or at risk, and one when it is not any more."""

    def __init__(self, store: NodeStore, log: FilteringBoundLogger) -> None:
        self._store = store
        self._log = log
        self._lost_for = 0.0
        self._risk = ""

    async def look(self) -> None:
        """Look whether that has changed; called about once a second."""
        age = self._store.age
        if age and not self._lost_for:
            self._log.warning("store lost", store_age=round(age, 1), reason=self._store.problem)
        elif self._lost_for and not age:
            self._log.info("store regained", seconds=round(self._lost_for, 1))
        self._lost_for = age
        self._look_for_risk()

    def _look_for_risk(self) -> None:
        risk = self._store.risk
        if risk and risk != self._risk:
            self._log.error("store at risk", reason=risk)
        elif self._risk and not risk:
            self._log.info("store no longer at risk")
        self._risk = risk
