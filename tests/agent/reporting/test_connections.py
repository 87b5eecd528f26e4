"""The order in which an agent prefers the registries of a group."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.reporting.connections import RegistryGroup
from tests.support.agent.reporter_harness import FakeRegistry
from tests.support.registry.load.spread import is_even

AGENTS = [f"agent-{number}" for number in range(3000)]
URLS = [f"https://registry-{number}.example.com:7655" for number in range(5)]
URL_LISTS = st.lists(st.integers().map("http://r{}".format), min_size=1, unique=True)


def order(urls: Sequence[str], agent_id: str) -> list[str]:
    group = RegistryGroup(clients=list(map(FakeRegistry, urls)), key=lambda: "", client_tls=None)
    return group.ordered_for(agent_id).urls


@given(
    st.lists(st.integers().map("http://r{}".format), min_size=1, unique=True),
    st.uuids(),
    st.randoms(),
)
def test_the_order_is_that_of_identity_and_urls_however_they_are_listed(
    urls: list[str], agent_id: object, random: Random
) -> None:
    shuffled = list(urls)
    random.shuffle(shuffled)

    assert order(shuffled, str(agent_id)) == order(urls, str(agent_id))
    assert sorted(order(urls, str(agent_id))) == sorted(urls)


def test_a_fleet_is_spread_evenly_and_so_are_the_hosts_of_a_registry_that_fails() -> None:
    orders = [order(URLS, agent_id) for agent_id in AGENTS]

    assert is_even(Counter(urls[0] for urls in orders), among=5)
    for failed in URLS:
        assert is_even(Counter(urls[1] for urls in orders if urls[0] == failed), among=4)


def test_a_registry_that_is_added_takes_its_share_and_moves_no_other_agent() -> None:
    before = {agent_id: order(URLS[:4], agent_id)[0] for agent_id in AGENTS}
    after = {agent_id: order(URLS, agent_id)[0] for agent_id in AGENTS}

    moved = [agent_id for agent_id in AGENTS if before[agent_id] != after[agent_id]]
    assert {after[agent_id] for agent_id in moved} == {URLS[4]}
    assert is_even(Counter(after.values()), among=5)
