import pytest

from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.pulled_apps import SERVED


@pytest.fixture
def engine() -> PullingEngine:
    """Return an engine whose server has three images."""
    engine = PullingEngine()
    engine.serve(SERVED)
    return engine
