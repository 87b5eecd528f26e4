"""GET /status: how the registry is, which hosts it rejects, and its last hours."""

from io import BytesIO
from typing import Any

import pytest

from config import VERSION
from config.registry import NodesSettings
from registry.api.access import NodeKeys
from registry.errors import StoreFull, StoreUnavailable, StoreUnreachable
from registry.nodes.heartbeat_counts import MAX_HOSTS, STEP_SECONDS, STEPS
from registry.store.protocol import Member
from tests.support.registry.in_process import (
    NODE_SECRET,
    READER,
    SCRAPER,
    WALL,
    WEB_HOSTS,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore


async def rejected(registry: InProcessRegistry) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await registry.get("/status"))["rejected"]
    return found


async def test_a_registry_that_is_well(registry: InProcessRegistry) -> None:
    await registry.post("a")
    registry.clock.pass_seconds(90)
    await registry.post("b")

    assert await registry.get("/status") == {
        "version": VERSION,
        "started_at": WALL,
        "now": WALL + 90,
        "stale_after_seconds": 90.0,
        "warming_seconds": 0,
        "store": {
            "kind": "memory",
            "url": "memory:",
            "shared": True,
            "state": "ok",
            "message": "",
        },
        "members": [],
        "denied": {"patterns": 0, "rejected": 0, "digest": "", "differs_from": []},
        "expected": {
            "file": None,
            "problem": "",
            "digest": "",
            "differs_from": [],
            "roll_call": None,
        },
        "nodes": {"total": 2, "fresh": 1, "stale": 1, "held": 0, "apps_down": 0},
        "rejected": [],
        "history": {
            "step_seconds": 60,
            "until": WALL,
            "heartbeats": [],
            "fresh": [],
            "stale": [],
        },
    }
    assert (await registry.ask("GET", "/status", key=None)).status == 401
    assert (await registry.ask("GET", "/status", key=WEB_HOSTS)).status == 403
    assert (await registry.ask("GET", "/status?x=1")).status == 400


async def test_a_warm_up_and_members() -> None:
    store = MemoryStore(continues=False)
    store.members = [Member(name="reg-1", run="ab", own=True, seen_seconds=0.5)]
    limits = NodesSettings(warm_up_seconds=90)
    async with in_process_registry(store=store, limits=limits) as registry:
        status = await registry.get("/status")
        assert status["warming_seconds"] == 90
        [member] = status["members"]
        assert member == {
            "name": "reg-1",
            "run": "ab",
            "own": True,
            "seen_seconds": 0.5,
            "denied": "",
            "expected": "",
        }


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (StoreUnavailable("the disk is gone"), "failed"),
        (StoreFull("the disk is full"), "full"),
        (StoreUnreachable("no quorum"), "unreachable"),
    ],
)
async def test_a_store_that_fails_is_reported(
    registry: InProcessRegistry, failure: Exception, state: str
) -> None:
    await registry.post("a")
    registry.store.failure = failure
    assert (await registry.post("b")).status in {503, 507}

    store = (await registry.get("/status"))["store"]

    assert (store["state"], store["message"]) == (state, str(failure))
    registry.store.failure = None
    await registry.post("b")
    assert (await registry.get("/status"))["store"]["state"] == "ok"


async def test_a_store_that_is_silent_or_at_risk_is_reported(registry: InProcessRegistry) -> None:
    registry.store.age, registry.store.problem = 5.0, "no quorum"
    store = (await registry.get("/status"))["store"]
    assert (store["state"], store["message"]) == ("unreachable", "no quorum")
    registry.store.age, registry.store.risk = 0.0, "n3 does not sync"
    store = (await registry.get("/status"))["store"]
    assert (store["state"], store["message"]) == ("at_risk", "n3 does not sync")


async def test_it_is_answered_while_the_store_is_loading() -> None:
    async with in_process_registry(load=False) as registry:
        status = await registry.get("/status")
        assert status["store"]["state"] == "loading"
        assert status["nodes"] == {
            "total": 0,
            "fresh": 0,
            "stale": 0,
            "held": 0,
            "apps_down": 0,
        }


async def test_hosts_that_are_rejected_are_reported_whoever_rejects_them(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", kv={"agent.id": "one"})
    await registry.post("web-1", kv={"agent.id": "two"}, key=WEB_HOSTS)
    registry.clock.pass_seconds(1)
    await registry.ask("POST", "/nodes/web-2", data=b"{}")
    await registry.ask("POST", "/nodes/web-3", data=BytesIO(b"x" * (1024 * 1024 + 1)))
    await registry.ask("POST", "/nodes/web_4%21", json={"labels": [], "kv": {}})

    found = await rejected(registry)

    assert [(one["hostname"], one["status"], one["at"] - WALL) for one in found] == [
        ("web_4!", 400, 1),
        ("web-3", 413, 1),
        ("web-2", 400, 1),
        ("web-1", 409, 0),
    ]
    assert {one["address"] for one in found} == {"127.0.0.1"}
    assert "agent.id" in found[-1]["message"]


@pytest.mark.parametrize("key", [READER, SCRAPER, WEB_HOSTS, NodeKeys([NODE_SECRET]).make("db-2")])
async def test_a_key_that_may_not_report_a_host_hides_and_shows_no_rejection(
    registry: InProcessRegistry, key: str
) -> None:
    await registry.ask("POST", "/nodes/web-2", data=b"{}")
    for number in range(MAX_HOSTS + 1):
        assert (await registry.post(f"ghost-{number}", key=key)).status == 403
    assert (await registry.post("db-1", key=key)).status == 403

    assert [one["hostname"] for one in await rejected(registry)] == ["web-2"]


async def test_what_is_about_no_host_is_not_reported(registry: InProcessRegistry) -> None:
    await registry.post("web-1", key=None)
    await registry.post("web-1", key="no-such-key-0123456789")
    await registry.ask("DELETE", "/nodes/web-1")
    await registry.ask("PUT", "/nodes/web-1")
    await registry.ask("GET", "/nodes/web-1")
    for failure in (StoreUnavailable("the disk is gone"), StoreFull("the disk is full")):
        registry.store.failure = failure
        for change in "ab":  # the second one finds that the store has failed already
            assert (await registry.post("web-1", [change])).status in {503, 507}
        registry.store.failure = None
        await registry.components.nodes.writes.flush()

    assert await rejected(registry) == []


async def test_a_host_that_was_accepted_since_is_left_out() -> None:
    async with in_process_registry(limits=NodesSettings(changes_per_minute=1)) as registry:
        await registry.post("web-1", ["a"])
        assert (await registry.post("web-1", ["b"])).status == 429
        registry.clock.pass_seconds(89)
        await registry.post("web-1", ["b"])
        assert [one["status"] for one in await rejected(registry)] == [429]
        registry.clock.pass_seconds(1)
        assert await rejected(registry) == []


async def test_a_clone_is_reported_for_as_long_as_it_posts(registry: InProcessRegistry) -> None:
    await registry.post("web-1", kv={"agent.id": "one"})
    for _ in range(8):
        registry.clock.pass_seconds(15)
        await registry.post("web-1", kv={"agent.id": "one"})
        registry.clock.pass_seconds(15)
        await registry.post("web-1", kv={"agent.id": "two"})
        assert [one["at"] for one in await rejected(registry)] == [int(registry.clock.wall)]


async def test_a_host_that_never_returns_is_left_out_after_an_hour(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", kv={"agent.id": "one"})
    await registry.post("web-1", kv={"agent.id": "two"})
    await registry.ask("POST", "/nodes/mistyped", data=b"{}")
    registry.clock.pass_seconds(3599)
    await registry.ask("POST", "/nodes/late", data=b"{}")
    assert [one["hostname"] for one in await rejected(registry)] == ["late", "mistyped", "web-1"]
    registry.clock.pass_seconds(1)
    assert [one["hostname"] for one in await rejected(registry)] == ["late"]


async def test_with_a_longer_stale_time_a_rejected_host_is_reported_for_as_long() -> None:
    async with in_process_registry(stale_after=7200) as registry:
        await registry.ask("POST", "/nodes/mistyped", data=b"{}")
        registry.clock.pass_seconds(7199)
        assert [one["hostname"] for one in await rejected(registry)] == ["mistyped"]
        registry.clock.pass_seconds(1)
        assert await rejected(registry) == []


@pytest.mark.slow
async def test_the_last_hundred_hosts_are_kept_each_once(registry: InProcessRegistry) -> None:
    for number in range(MAX_HOSTS + 20):
        await registry.ask("POST", f"/nodes/web-{number}", data=b"{}")
        await registry.ask("POST", "/nodes/again", data=b"[]")

    found = await rejected(registry)

    assert len(found) == MAX_HOSTS
    assert [one["hostname"] for one in found[:2]] == ["again", f"web-{MAX_HOSTS + 19}"]
    assert len({one["hostname"] for one in found}) == MAX_HOSTS


@pytest.mark.slow
async def test_the_history_is_of_six_hours(registry: InProcessRegistry) -> None:
    history = registry.components.heartbeats
    await history.sample()
    for _ in range(3):
        await registry.post("a")
        await registry.post("a", ["changed"])
    registry.clock.pass_seconds(STEP_SECONDS)
    await history.sample()
    registry.clock.pass_seconds(STEP_SECONDS)
    await history.sample()

    assert (await registry.get("/status"))["history"] == {
        "step_seconds": 60,
        "until": WALL + 120,
        "heartbeats": [0.1, 0.0],
        "fresh": [1, 0],
        "stale": [0, 1],
    }
    for _ in range(2 * STEPS):
        await history.sample()
    history = (await registry.get("/status"))["history"]
    assert [len(history[name]) for name in ("heartbeats", "fresh", "stale")] == [STEPS] * 3
