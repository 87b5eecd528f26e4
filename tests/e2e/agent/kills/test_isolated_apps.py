from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import docker
import docker.errors
import pytest

from tests.support.agent.kills.operations import ISOLATED_CREATIONS, MOVES
from tests.support.agent.kills.runs import Check

pytestmark = [
    pytest.mark.real("docker-registry"),
    pytest.mark.long(2),
    pytest.mark.timeout(1800),
    pytest.mark.release("a fault at each of some 300 calls takes ten minutes"),
]


@pytest.fixture
def app_settings() -> dict[str, Any]:
    return {"isolated": True}


@pytest.fixture(autouse=True)
def _network(docker_client: docker.APIClient) -> Iterator[None]:
    """Remove the network in the end."""
    yield
    with suppress(docker.errors.NotFound):
        docker_client.remove_network("rollcall")


# The network, which each creation finds missing, is that of all agents on the engine.
@pytest.mark.parametrize("host_count", [1], ids=["one agent"])
def test_a_creation_with_a_fault_at_any_call_is_done_or_undone_without_the_network(
    check: Check,
) -> None:
    check(ISOLATED_CREATIONS)


def test_a_move_with_a_fault_at_any_call_leaves_the_app_in_the_network_from_before_or_the_new_one(
    check: Check,
) -> None:
    check(MOVES)
