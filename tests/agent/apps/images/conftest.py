import pytest

from tests.support.agent.apps.pulled_apps import SERVED
from tests.support.agent.engines.pulling_engine import PullingEngine


@pytest.fixture
def engine() -> PullingEngine:
    """Return an engine whose server has three images."""
    engine = PullingEngine()
    engine.serve(SERVED)
    return engine
