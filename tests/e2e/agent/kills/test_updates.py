import pytest

from tests.support.agent.kills.operations import UPDATES
from tests.support.agent.kills.runs import Check

pytestmark = [pytest.mark.real("docker-registry"), pytest.mark.long(1), pytest.mark.timeout(1800)]


def test_an_update_with_a_fault_at_any_call_is_done_or_undone(check: Check) -> None:
    check(UPDATES)
