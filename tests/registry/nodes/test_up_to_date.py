"""A heartbeat is answered from memory only while the memory is known to be up to date."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from config.registry import NodesSettings
from registry.callbacks.receiver import Callback
from registry.errors import StoreFull, StoreUnreachable
from registry.nodes.search import Filters
from registry.store.protocol import Row
from tests.support.registry.in_process import SCRAPER, InProcessRegistry, in_process_registry
from tests.support.waiting import async_until

FIRST = {"agent.id": "first"}


def of_another_registry(agent: str) -> Row:
    document = b'{"labels":["theirs"],"kv":{"agent.id":"%b"}}' % agent.encode()
    return Row("a", document, 1_700_000_100, "192.0.2.7")


async def catches_up(registry: InProcessRegistry) -> bool:
    """Send the last heartbeat of the host again; return whether the store had to catch up."""
    before = registry.store.catch_ups
    registry.store.guard = None
    answer = await registry.post("a", ["ours"], FIRST)
    assert answer.status == 200
    assert registry.store.guard is None, "the node was put"
    return registry.store.catch_ups > before


@pytest.mark.parametrize("lane", [True, False])
async def test_an_unchanged_heartbeat_waits_for_a_store_that_is_not_up_to_date(
    *, lane: bool
) -> None:
    async with in_process_registry(lane=lane) as registry:
        await registry.post("a", ["ours"], FIRST)
        assert not await catches_up(registry)
        registry.store.is_current = False
        assert await catches_up(registry)

        registry.store.failure = StoreUnreachable("the servers are away")
        assert (await registry.post("a", ["ours"], FIRST)).status == 503
        registry.store.failure = None
        assert await catches_up(registry)
        registry.store.is_current = True
        assert not await catches_up(registry)


async def test_an_unchanged_heartbeat_that_waited_changes_nothing() -> None:
    async with in_process_registry() as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.is_current = False
        registry.clock.pass_seconds(30)
        answer = await registry.post("a", ["ours"], FIRST)

        assert answer.json()[0]["last_update"] == registry.clock.wall
        assert [kind for kind, _, _ in registry.audit] == ["added"]
        counts = await registry.counts()
        assert (counts["added"], counts["changed"], counts["unchanged"]) == (1, 0, 1)


@pytest.mark.parametrize("lane", [True, False])
async def test_a_heartbeat_that_waited_is_rejected_if_another_host_took_over_meanwhile(
    *, lane: bool
) -> None:
    async with in_process_registry(lane=lane) as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.is_current = False
        registry.store.missed = [of_another_registry("second")]

        assert (await registry.post("a", ["ours"], FIRST)).status == 409
        assert (await registry.counts())["clone"] == 1


@pytest.mark.parametrize("lane", [True, False])
async def test_a_heartbeat_that_waited_is_put_if_the_node_was_changed_meanwhile(
    *, lane: bool
) -> None:
    async with in_process_registry(lane=lane) as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.is_current = False
        registry.store.missed = [of_another_registry("first")]

        assert (await registry.post("a", ["ours"], FIRST)).status == 200
        assert b"ours" in registry.store.rows["a"].document
        assert (await registry.ask("GET", "/nodes/a")).json()[0]["labels"] == ["ours"]


@pytest.mark.parametrize("lane", [True, False])
@pytest.mark.parametrize(
    ("method", "labels", "kv", "query", "judged"),
    [
        pytest.param("POST", ["ours"], {"agent.id": "second"}, "", 409, id="another host"),
        pytest.param("POST", ["ours"], FIRST | {"agent.instance": "1"}, "", 409, id="a clone"),
        pytest.param("POST", ["changed"], FIRST, "", 429, id="too many changes"),
        pytest.param("POST", ["x" * 1000] * 1000, FIRST, "", 429, id="too many bytes"),
        pytest.param("DELETE", (), {}, "?agent_id=second", 409, id="deletion by another host"),
        pytest.param("DELETE", (), {}, "?stale=true", 409, id="deletion of a fresh host"),
        pytest.param("DELETE", (), {}, "b", 404, id="deletion of an unknown host"),
    ],
)
async def test_nothing_is_rejected_for_good_by_what_may_be_out_of_date(
    *,
    lane: bool,
    method: str,
    labels: Sequence[str],
    kv: Mapping[str, str],
    query: str,
    judged: int,
) -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=2)
    path, body = f"/nodes/a{query}", {"labels": list(labels), "kv": dict(kv)}
    async with in_process_registry(limits=limits, lane=lane) as registry:
        for instance in ("1", "2"):
            await registry.post("a", ["ours"], FIRST | {"agent.instance": instance})
        registry.store.is_current = False
        registry.store.failure = StoreUnreachable("the servers are away")

        for _ in range(3):
            assert (await registry.ask(method, path, json=body)).status == 503

        registry.store.failure = None
        assert (await registry.ask(method, path, json=body)).status == judged
        assert (await registry.counts())["rate"] == (judged == 429)


async def test_a_change_that_fails_in_the_store_is_not_counted() -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=2)
    async with in_process_registry(limits=limits) as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.failure = StoreFull("no room")
        for _ in range(3):
            assert (await registry.post("a", ["changed"], FIRST)).status == 507
        registry.store.failure = None
        assert (await registry.post("a", ["changed"], FIRST)).status == 200
        assert (await registry.post("a", ["again"], FIRST)).status == 429


@pytest.mark.parametrize("label", ["ours", "changed"])
async def test_a_host_that_cannot_be_put_is_alive_all_the_same(label: str) -> None:
    async with in_process_registry() as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.is_current = False
        registry.store.failure = StoreUnreachable("the servers are away")
        registry.clock.pass_seconds(60)
        assert (await registry.post("a", [label], FIRST)).status == 503
        registry.clock.pass_seconds(60)

        assert registry.components.nodes.state_counts() == (1, 0)


async def test_what_was_seen_is_not_written_of_a_node_that_another_registry_changed() -> None:
    async with in_process_registry() as registry:
        await registry.post("a", ["ours"], FIRST)
        await registry.post("a", ["ours"], FIRST)
        registry.store.shared.stored(of_another_registry("first"))
        await registry.components.nodes.writes.flush()
        assert registry.store.touches == 0

        await registry.post("a", ["theirs"], FIRST)
        registry.store.shared.stored(of_another_registry("first"))  # as it is here
        await registry.components.nodes.writes.flush()
        assert registry.store.touches == 1


async def test_a_heartbeat_that_changes_nothing_is_not_limited_either_way() -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=2)
    async with in_process_registry(limits=limits) as registry:
        await registry.post("a", ["ours"], FIRST)
        registry.store.is_current = False
        assert all([await catches_up(registry) for _ in range(5)])


async def test_a_node_that_is_deleted_and_added_at_the_same_time_is_limited_as_any_other() -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=2)
    async with in_process_registry(limits=limits) as registry:
        statuses = set[int]()
        for _ in range(20):
            _, added = await asyncio.gather(
                registry.ask("DELETE", "/nodes/a"), registry.post("a", ["ours"], FIRST)
            )
            statuses.add(added.status)
        assert 429 in statuses


async def test_while_the_store_is_away_the_ages_of_nodes_alone_stand_still(
    unused_tcp_port: int,
) -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=1)
    callback = Callback(
        url=f"http://127.0.0.1:{unused_tcp_port}/", key=b"k" * 16, filters=Filters()
    )
    async with (
        in_process_registry(limits=limits) as registry,
        registry.components.callbacks.sending([callback]),
    ):

        async def shown(metric: str) -> float:
            text = (await registry.ask("GET", "/metrics")).body.decode()
            return sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith(f"rollcall_registry_{metric}")
            )

        async def has_failed() -> bool:
            return await shown("callback_posts_total") > 0

        await registry.post("a", ["prometheus:web"], FIRST)
        await registry.get("/prometheus/web", key=SCRAPER)
        await async_until(has_failed, within=20)
        registry.clock.is_held = True
        registry.store.failure = StoreUnreachable("the servers are away")

        registry.clock.pass_seconds(700)
        await registry.components.nodes.writes.flush()

        assert registry.components.nodes.state_counts() == (1, 0)
        assert await shown("consumer_last_fetch_age_seconds") == 700
        assert await shown("callback_failing_seconds") == 700
        assert await shown("available") == 0
        assert (await registry.ask("GET", "/healthz")).status == 503
        registry.store.failure = None
        assert (await registry.post("a", ["changed"], FIRST)).status == 200
