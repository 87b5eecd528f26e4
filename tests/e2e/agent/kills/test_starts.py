import pytest

from tests.support.agent.kills.runs import Check
from tests.support.agent.kills.starts_and_ends import STARTS

pytestmark = [pytest.mark.real("docker-registry"), pytest.mark.long(1), pytest.mark.timeout(1800)]


def test_a_start_with_a_fault_at_any_call_is_done_or_undone(check: Check) -> None:
    check(STARTS)
