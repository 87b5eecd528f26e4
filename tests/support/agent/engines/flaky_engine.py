"""A container engine in memory that goes away before a call."""

from agent.engine.errors import EngineUnavailable
from tests.support.agent.engines.fake_engine import FakeEngine


class Flaky(FakeEngine):
    """An engine that goes away before one call, until it is back."""

    def __init__(self, call: str) -> None:
        super().__init__(at_step=self._away_at)
        self.call: str | None = None
        self._step_away = f"before {call}"

    async def _away_at(self, step: str) -> None:
        if self.call is not None and step == self._step_away:
            raise EngineUnavailable("away")
