"""What other registries did, as the store reports it, and a store that is out of reach."""

import pytest

from config.registry import NodesSettings
from registry.errors import CloneRejected, StoreUnreachable
from registry.store.protocol import HeardBefore, Row
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

TARGETS = "/prometheus/web?format=http_sd"


def row(hostname: str, label: str = "prometheus:web", agent: str = "a") -> Row:
    document = b'{"labels":["%b"],"kv":{"agent.id":"%b"}}' % (label.encode(), agent.encode())
    return Row(hostname, document, 1_700_000_100, "192.0.2.7")


async def names(registry: InProcessRegistry) -> list[str]:
    return [node["hostname"] for node in await registry.get("/nodes")]


async def states(registry: InProcessRegistry) -> tuple[int, int]:
    """Return how many nodes are fresh, and how many are stale."""
    await registry.get("/nodes")
    return registry.components.nodes.state_counts()


async def test_a_node_of_another_registry_is_listed_and_scraped() -> None:
    async with in_process_registry() as registry:
        registry.store.shared.stored(row("far"))

        (node,) = await registry.get("/nodes")
        assert node == {
            "hostname": "far",
            "labels": ["prometheus:web"],
            "kv": {"agent.id": "a"},
            "last_update": 1_700_000_100,
        }
        (target,) = await registry.get(TARGETS)
        assert target["targets"] == ["far:9100"]
        ((kind, hostname, source),) = registry.audit
        assert (kind, hostname) == ("added", "far")
        assert source == ("another registry", "192.0.2.7")


async def test_a_change_and_a_deletion_by_another_registry_take_effect() -> None:
    async with in_process_registry() as registry:
        await registry.post("near", ["prometheus:web"])
        registry.store.shared.stored(row("near", "service:db"))
        assert (await registry.get("/nodes/near"))[0]["labels"] == ["service:db"]
        assert await registry.get(TARGETS) == []

        registry.store.shared.deleted("near", expired=False)
        registry.store.shared.deleted("unknown", expired=False)
        assert await names(registry) == []
        assert registry.components.nodes.limits.capacity.used_bytes == 0


async def test_a_node_that_is_seen_elsewhere_stays_fresh_and_its_time_is_shown() -> None:
    async with in_process_registry() as registry:
        await registry.post("a")
        await registry.post("b")
        registry.clock.pass_seconds(60)
        heard = [("a", 1_700_000_500, "192.0.2.9"), ("unknown", 1, "x")]
        registry.store.shared.heard(heard, own=False)
        registry.clock.pass_seconds(60)

        assert await states(registry) == (1, 1)
        assert (await registry.get("/nodes/a"))[0]["last_update"] == 1_700_000_500
        registry.store.shared.heard([("b", 1_700_000_600, "192.0.2.9")], own=False)
        assert await states(registry) == (2, 0)


async def test_ages_known_elsewhere_count_for_what_is_stale_and_what_expires() -> None:
    async with in_process_registry(expire_after=1000) as registry:
        for name in ("a", "b", "c", "d"):
            await registry.post(name)
        registry.clock.pass_seconds(600)
        assert await states(registry) == (0, 4)

        heard = [
            HeardBefore("b", 1_700_000_600, "192.0.2.9", 80.0),
            HeardBefore("c", 1_700_000_500, "127.0.0.1", 300.0),
            HeardBefore("d", 1, "127.0.0.1", 900.0),  # older than what is known here
            HeardBefore("unknown", 1, "x", 1.0),
        ]
        registry.store.shared.heard_before(heard)

        assert await states(registry) == (1, 3)
        assert (await registry.get("/nodes/b"))[0]["last_update"] == 1_700_000_600
        registry.clock.pass_seconds(20)
        assert await states(registry) == (0, 4)
        registry.clock.pass_seconds(400)
        assert await names(registry) == ["b", "c"]
        registry.clock.pass_seconds(300)
        assert await names(registry) == ["b"]


async def test_an_own_report_that_comes_back_does_not_undo_a_later_one() -> None:
    async with in_process_registry() as registry:
        await registry.post("a")
        registry.clock.pass_seconds(10)
        await registry.post("a")
        shown = (await registry.get("/nodes/a"))[0]["last_update"]

        registry.store.shared.heard([("a", shown - 10, "127.0.0.1")], own=True)
        assert (await registry.get("/nodes/a"))[0]["last_update"] == shown
        await registry.components.nodes.writes.flush()
        registry.store.shared.heard([("a", shown + 3, "127.0.0.1")], own=True)
        assert (await registry.get("/nodes/a"))[0]["last_update"] == shown + 3


async def test_a_node_that_expired_elsewhere_is_kept_and_written_again_if_it_is_fresh() -> None:
    async with in_process_registry() as registry:
        await registry.post("a")
        await registry.post("b")
        registry.clock.pass_seconds(91)
        await registry.post("a")
        await registry.components.nodes.writes.flush()

        registry.store.shared.deleted("a", expired=True)
        registry.store.shared.deleted("b", expired=True)

        assert await names(registry) == ["a"]
        touched = registry.store.touches
        await registry.components.nodes.writes.flush()
        assert registry.store.touches == touched + 1


async def test_the_guard_of_a_heartbeat_knows_what_others_did_meanwhile() -> None:
    async with in_process_registry() as registry:
        body = {"agent.id": "here"}
        assert (await registry.post("a", kv=body)).status == 200
        guard = registry.store.guard
        assert guard is not None
        assert guard() is None

        registry.store.shared.stored(row("a", agent="elsewhere"))
        assert isinstance(guard(), CloneRejected)
        registry.clock.pass_seconds(91)
        assert guard() is None  # it is stale by now
        registry.store.shared.deleted("a", expired=False)
        assert guard() is None


async def test_changes_that_others_accepted_count_for_the_limit() -> None:
    limits = NodesSettings(warm_up_seconds=0, max_mib=0, changes_per_minute=5)
    async with in_process_registry(limits=limits) as registry:
        for number in range(8):  # others had room for them
            registry.store.shared.stored(row("a", f"v{number}"))

        assert (await registry.get("/nodes/a"))[0]["labels"] == ["v7"]
        assert (await registry.post("a", kv={"agent.id": "a"})).status == 429


async def test_without_its_store_a_registry_goes_on_from_memory_and_says_how_old_it_is() -> None:
    async with in_process_registry() as registry:
        await registry.post("a", ["prometheus:web"])
        registry.store.failure = StoreUnreachable("the servers are away")
        registry.store.age = 12.3

        rejected = await registry.post("b")
        assert (rejected.status, rejected.headers["Retry-After"]) == (503, "5")
        for path in ("/nodes", "/nodes/a", TARGETS):
            answer = await registry.ask("GET", path)
            assert (answer.status, answer.headers["Rollcall-Store-Age"]) == (200, "13")
        assert (await registry.ask("GET", "/healthz", key=None)).status == 503
        assert "Rollcall-Store-Age" not in (await registry.ask("GET", "/nodes", key=None)).headers
        metrics = (await registry.ask("GET", "/metrics")).body
        assert b"rollcall_registry_store_age_seconds 12.3" in metrics
        registry.clock.pass_seconds(200_000)
        assert await states(registry) == (1, 0)  # nobody knows who reports elsewhere

        registry.store.failure, registry.store.age = None, 0.0
        await registry.components.nodes.writes.flush()
        answer = await registry.ask("GET", "/nodes")
        assert "Rollcall-Store-Age" not in answer.headers


@pytest.mark.parametrize("confirmed_elsewhere", [True, False])
async def test_a_warm_up_ends_when_any_registry_says_so(*, confirmed_elsewhere: bool) -> None:
    store = MemoryStore(continues=False)
    limits = NodesSettings(warm_up_seconds=90, max_mib=0, changes_per_minute=0)
    async with in_process_registry(store=store, limits=limits) as registry:
        assert (await registry.ask("GET", TARGETS)).status == 503
        store.continues = confirmed_elsewhere

        assert (await registry.ask("GET", TARGETS)).status == (200 if confirmed_elsewhere else 503)


async def test_a_store_that_is_lost_while_the_registry_runs_is_current_again_after_a_while() -> (
    None
):
    limits = NodesSettings(warm_up_seconds=90, max_mib=0, changes_per_minute=0)
    async with in_process_registry(limits=limits) as registry:
        await registry.post("a", ["prometheus:web"])
        registry.store.continues = False
        warm_up = registry.components.warm_up

        await warm_up.finish()
        registry.clock.pass_seconds(89)
        await warm_up.finish()
        assert not registry.store.continues
        assert len(await registry.get(TARGETS)) == 1  # nothing is withheld: it is in memory
        registry.clock.pass_seconds(1)
        await warm_up.finish()
        assert registry.store.continues
