"""One fault of an operation of each kind; `make test-all` takes one at each call of all of them."""

import pytest

from tests.support.agent.kills.operations import SAMPLED
from tests.support.agent.kills.runs import SAMPLE, Check, Choice

pytestmark = [pytest.mark.real("docker-registry"), pytest.mark.long(2), pytest.mark.engines]


@pytest.fixture
def choice() -> Choice:
    return SAMPLE


def test_an_operation_with_a_fault_at_one_of_its_calls_is_done_or_undone(check: Check) -> None:
    check(SAMPLED)
