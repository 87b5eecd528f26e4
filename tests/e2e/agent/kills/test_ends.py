import pytest

from tests.support.agent.kills.runs import Check
from tests.support.agent.kills.starts_and_ends import ENDS

pytestmark = [
    pytest.mark.real("docker-registry"),
    pytest.mark.long(2),
    pytest.mark.timeout(1800),
    pytest.mark.release("a fault at each of some 300 calls takes ten minutes"),
]


def test_a_stop_or_deletion_with_a_fault_at_any_call_is_done_or_undone(check: Check) -> None:
    check(ENDS)
