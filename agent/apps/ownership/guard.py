"""Removes claims of other agents on this one's apps, and notices adoptions by this one."""

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from agent.apps.ownership.ownership import Ownership


class ClaimGuard:
    """Removes the claims that others make on this agent's identities.

    ``on_adopted`` is called when `rollcall-agent adopt` has added to the identities.
    """

    def __init__(
        self, *, ownership: Ownership, on_adopted: Callable[[], None], log: FilteringBoundLogger
    ) -> None:
        self._ownership = ownership
        self._on_adopted = on_adopted
        self._log = log

    async def look(self) -> None:
        """Look for claims, and for further identities; EngineError."""
        if self._ownership.has_adopted():
            self._on_adopted()
        for agent in await self._ownership.withdraw_claims():
            self._log.warning("claim of another agent withdrawn", agent=agent)
