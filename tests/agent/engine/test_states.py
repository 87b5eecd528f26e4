"""What an inspection found is in each list, until the list has caught up."""

import msgspec

from agent.engine.models import Container, InspectedContainer
from agent.engine.states import ContainerStates
from tests.support.agent.engines.fake_engine import IMAGE
from tests.support.agent.engines.fake_state import FakeContainer, inspected, listed

RUNNING = FakeContainer(
    id="c1",
    name="web",
    image=IMAGE,
    labels={},
    env={},
    ports=[20001],
    volumes={},
    cpu=100,
    memory=64,
    image_id="i1",
    state="running",
)
CONNECTED = frozenset({"rollcall"})


def seen(networks: frozenset[str]) -> InspectedContainer:
    return msgspec.structs.replace(inspected(RUNNING), networks=networks, ports={})


def in_list(networks: frozenset[str]) -> Container:
    return msgspec.structs.replace(listed(RUNNING), networks=networks)


def test_a_container_that_was_disconnected_on_a_full_disk_is_so_in_lists() -> None:
    states = ContainerStates()
    states.corrected([in_list(CONNECTED)], complete=True)

    states.inspected(seen(frozenset()))

    (corrected,) = states.corrected([in_list(CONNECTED)], complete=True)
    assert (corrected.networks, dict(corrected.ports)) == (frozenset(), {})
    # The list has caught up, and goes on from there.
    assert states.corrected([in_list(frozenset())], complete=True) == [in_list(frozenset())]
    assert states.corrected([in_list(CONNECTED)], complete=True) == [in_list(CONNECTED)]
