"""One fault of an operation of each kind; `make test-all` takes one at each call of all of them."""

import pytest

from tests.support.agent.kills.host import KilledHosts
from tests.support.agent.kills.operations import SAMPLED
from tests.support.agent.kills.runs import failures_of_sample

pytestmark = [
    pytest.mark.real("docker-registry"),
    pytest.mark.long(1),
    pytest.mark.engines,
    pytest.mark.usefixtures("no_volume_left"),
]


@pytest.fixture
def host_count() -> int:
    return 2


def test_an_operation_with_a_fault_at_one_of_its_calls_is_done_or_undone(
    hosts: KilledHosts,
) -> None:
    failures = failures_of_sample(hosts, SAMPLED)

    assert failures == [], "\n".join(failures)
