"""POST /nodes/{hostname}."""

import asyncio
from typing import Any

import pytest

from registry.errors import NodeTooLarge, StoreFull, StoreUnavailable, StoreUnreachable
from registry.nodes.changes import ChangeKind
from tests.support.registry.in_process import (
    OPS,
    WALL,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore


async def test_a_new_node_is_answered_as_an_array_of_it_and_is_in_the_store(
    registry: InProcessRegistry,
) -> None:
    answer = await registry.post("web-1", ["service:web"], {"rack": "r12"})

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == [
        {
            "hostname": "web-1",
            "labels": ["service:web"],
            "kv": {"rack": "r12"},
            "last_update": WALL,
        }
    ]
    assert (
        registry.store.rows["web-1"].document == b'{"labels":["service:web"],"kv":{"rack":"r12"}}'
    )


async def test_a_known_node_is_replaced_whole(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a", "b"], {"x": "1", "y": "2"})
    registry.clock.pass_seconds(7)

    answer = await registry.post("web-1", ["c"], {"z": "3"})

    expected = {"hostname": "web-1", "labels": ["c"], "kv": {"z": "3"}, "last_update": WALL + 7}
    assert answer.json() == [expected]
    assert await registry.get("/nodes/web-1") == [expected]


async def test_what_was_read_can_be_sent_back(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a"], {"x": "1"})
    (node,) = await registry.get("/nodes/web-1")

    answer = await registry.ask("POST", "/nodes/web-1", json=node | {"labels": ["b"]})

    assert answer.status == 200
    assert answer.json()[0]["labels"] == ["b"]


async def test_the_last_update_that_is_sent_is_ignored(registry: InProcessRegistry) -> None:
    body = {"labels": [], "kv": {}, "last_update": 5}

    answer = await registry.ask("POST", "/nodes/web-1", json=body)

    assert answer.json()[0]["last_update"] == WALL


async def test_a_body_of_another_host_than_the_path_is_rejected(
    registry: InProcessRegistry,
) -> None:
    body = {"labels": [], "kv": {}, "hostname": "web-2"}

    answer = await registry.ask("POST", "/nodes/web-1", json=body)

    assert answer.status == 400
    assert "web-2" in answer.json()["message"]
    assert await registry.get("/nodes") == []


async def test_the_hostname_in_the_body_may_be_spelt_otherwise(registry: InProcessRegistry) -> None:
    body = {"labels": [], "kv": {}, "hostname": "WEB-1."}

    assert (await registry.ask("POST", "/nodes/web-1", json=body)).status == 200


@pytest.mark.parametrize(
    ("given", "kept"), [("WEB-1.Example.COM", "web-1.example.com"), ("web-1.", "web-1")]
)
async def test_a_hostname_has_one_spelling(
    registry: InProcessRegistry, given: str, kept: str
) -> None:
    answer = await registry.post(given)

    assert answer.json()[0]["hostname"] == kept
    assert (await registry.get(f"/nodes/{given}"))[0]["hostname"] == kept


@pytest.mark.parametrize("hostname", ["a", "a_b", "1", "-", "a" * 253, "a" * 253 + "."])
async def test_a_usual_hostname_is_taken(registry: InProcessRegistry, hostname: str) -> None:
    assert (await registry.post(hostname)).status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "hostname",
    [
        "a" * 254, "a%20b", "a%0a", "a%00b", "..%2fetc", "%2e%2e", "a..b", ".a", "a%2Fb", ".",
        "%e2%84%aa", "w%C3%A9b", "a:b", "a,b", "%5B::1%5D", "a%25", "%ff",
    ],
)  # fmt: skip
async def test_an_odd_hostname_is_rejected(registry: InProcessRegistry, hostname: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = await registry.ask(method, f"/nodes/{hostname}", json={"labels": [], "kv": {}})

        assert answer.status in {400, 404}, method
        assert set(answer.json()) == {"message"}
    assert await registry.get("/nodes") == []


async def test_labels_keep_their_order_and_lose_their_duplicates(
    registry: InProcessRegistry,
) -> None:
    answer = await registry.post("web-1", ["b", "a", "b", "c", "a"])

    assert answer.json()[0]["labels"] == ["b", "a", "c"]


@pytest.mark.parametrize(
    "body",
    [
        {"labels": ["x" * 1024], "kv": {}},
        {"labels": [f"l{i}" for i in range(4096)], "kv": {}},
        {"labels": [], "kv": {"k" * 256: "v" * 16_384}},
        {"labels": [], "kv": {f"k{i}": "" for i in range(1024)}},
        {"labels": ["grüße 😀 \u2028"], "kv": {"ключ": "\n\t\x00"}},
    ],
    ids=["long label", "many labels", "long kv", "many kv", "any language"],
)
async def test_what_is_within_the_limits_is_taken(registry: InProcessRegistry, body: Any) -> None:
    answer = await registry.ask("POST", "/nodes/web-1", json=body)

    assert answer.status == 200
    assert answer.json()[0] == body | {"hostname": "web-1", "last_update": WALL}


async def test_an_unchanged_heartbeat_moves_last_update_at_once_and_is_durable_after_a_flush(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"], {"x": "1", "y": "2"})
    registry.clock.pass_seconds(30)

    answer = await registry.post("web-1", ["a"], {"x": "1", "y": "2"})

    assert answer.json()[0]["last_update"] == WALL + 30
    assert (await registry.get("/nodes"))[0]["last_update"] == WALL + 30
    assert (await registry.counts())["changed"] == 0
    await registry.components.nodes.writes.flush()
    assert registry.store.rows["web-1"].last_update == WALL + 30


async def test_the_order_of_the_kv_makes_no_difference(registry: InProcessRegistry) -> None:
    await registry.post("web-1", [], {"x": "1", "y": "2"})

    await registry.post("web-1", [], {"y": "2", "x": "1"})

    assert (await registry.counts())["unchanged"] == 1


async def test_the_order_of_the_labels_does(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["a", "b"])

    answer = await registry.post("web-1", ["b", "a"])

    assert answer.json()[0]["labels"] == ["b", "a"]
    assert (await registry.counts())["changed"] == 1


@pytest.mark.slow
async def test_two_changes_at_once_leave_the_one_that_came_last(
    registry: InProcessRegistry,
) -> None:
    updates: list[int] = []
    registry.components.context.changes.subscribe(
        lambda change: updates.append(change.node.last_update),
        {ChangeKind.ADDED, ChangeKind.CHANGED},
    )

    async def pass_time() -> None:
        while True:
            registry.clock.pass_seconds(1)
            await asyncio.sleep(0)

    async def post(number: int) -> int:
        kv = {f"k{n}": "v" * 10_000 for n in range(6 * (number % 2))}
        return (await registry.post("web-1", [f"l{number}"], kv)).status

    passing = asyncio.create_task(pass_time())
    assert await asyncio.gather(*[post(number) for number in range(50)]) == [200] * 50
    passing.cancel()

    assert len(updates) == 50
    assert updates == sorted(updates)
    (node,) = await registry.get("/nodes/web-1")
    stored = registry.store.rows["web-1"].document
    assert f'"{node["labels"][0]}"'.encode() in stored


async def test_while_a_change_waits_for_the_disk_reads_show_what_was_before(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["before"])
    registry.store.failure = StoreFull("full")

    answer = await registry.post("web-1", ["after"])

    assert answer.status == 507
    assert answer.headers["Retry-After"] == "5"
    assert answer.json() == {"message": "full"}
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["before"]
    health = await registry.get("/healthz", key=None)
    assert health["store"] == "full"
    assert health["message"].startswith("store: full, ")
    registry.store.failure = None
    assert (await registry.post("web-1", ["after"])).status == 200
    assert await registry.get("/healthz", key=None) == {"message": "ok"}


async def test_a_heartbeat_that_cannot_be_made_durable_counts_as_seen_but_is_507(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"])
    registry.store.failure = StoreFull("full")
    await registry.post("web-2", ["new"])  # by which the trouble is known
    registry.clock.pass_seconds(30)

    answer = await registry.post("web-1", ["a"])

    assert answer.status == 507
    assert (await registry.get("/nodes/web-1"))[0]["last_update"] == WALL + 30
    registry.store.failure = None
    await registry.components.nodes.writes.flush()
    assert (await registry.post("web-1", ["a"])).status == 200
    assert registry.store.rows["web-1"].last_update == WALL + 30


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (StoreFull("full"), 507),
        (StoreUnreachable("frozen"), 503),
        (StoreUnavailable("failed"), 503),
        (NodeTooLarge("large"), 413),
    ],
)
@pytest.mark.parametrize("lane", [True, False])
async def test_a_changed_heartbeat_that_the_store_rejects_counts_as_seen(
    *, failure: Exception, status: int, lane: bool
) -> None:
    async with in_process_registry(lane=lane) as registry:
        await registry.post("web-1", ["before"], {"agent.id": "one"})
        registry.store.failure = failure
        for _ in range(3):
            registry.clock.pass_seconds(60)
            answer = await registry.post("web-1", ["after"], {"agent.id": "one"})
            assert answer.status == status

        registry.store.failure = None
        await registry.components.nodes.writes.flush()
        (node,) = await registry.get("/nodes?stale=false")
        assert (node["labels"], node["last_update"]) == (["before"], WALL + 180)
        clone = await registry.post("web-1", ["clone"], {"agent.id": "two"})
        assert clone.status == 409


async def test_another_host_that_the_store_rejects_does_not_keep_a_stale_one(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["before"], {"agent.id": "one"})
    registry.store.failure = StoreFull("full")
    registry.clock.pass_seconds(91)

    answer = await registry.post("web-1", ["after"], {"agent.id": "two"})

    assert answer.status == 507
    assert [node["hostname"] for node in await registry.get("/nodes?stale=true")] == ["web-1"]


async def test_a_deletion_that_cannot_be_made_durable_is_507_and_the_node_stays(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"])
    registry.store.failure = StoreFull("full")

    answer = await registry.ask("DELETE", "/nodes/web-1")

    assert answer.status == 507
    assert "Retry-After" in answer.headers
    assert (await registry.get("/nodes/web-1"))[0]["labels"] == ["a"]


@pytest.mark.parametrize(
    "path", ["/nodes", "/nodes/web-1", "/nodes/web-1/explain", "/services", "/prometheus/web"]
)
async def test_when_the_store_has_failed_reads_are_503_and_recover(
    registry: InProcessRegistry, path: str
) -> None:
    await registry.post("web-1", ["prometheus:web"])
    registry.store.failure = StoreUnavailable("the disk is gone")
    await registry.post("web-2")

    answer = await registry.ask("GET", path)

    assert answer.status == 503
    assert answer.json() == {"message": "the disk is gone"}
    assert (await registry.ask("GET", "/healthz", key=None)).status == 503
    registry.store.failure = None
    await registry.components.nodes.writes.flush()
    assert (await registry.ask("GET", path)).status == 200


async def test_until_the_store_is_loaded_everything_is_503() -> None:
    store = MemoryStore()
    store.loaded.clear()
    async with in_process_registry(store=store, load=False) as registry:
        for method, path in [
            ("GET", "/nodes"),
            ("GET", "/nodes/web-1"),
            ("GET", "/prometheus/web"),
            ("DELETE", "/nodes/web-1"),
        ]:
            answer = await registry.ask(method, path)
            assert answer.status == 503, path
            assert "Retry-After" in answer.headers
        assert (await registry.post("web-1")).status == 503
        store.loaded.set()
        await registry.components.load()
        assert (await registry.post("web-1")).status == 200


async def test_each_change_has_to_the_audit_log_and_heartbeats_are_not(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["a"])
    await registry.post("web-1", ["a"])
    await registry.post("web-1", ["b"])
    await registry.ask("DELETE", "/nodes/web-1", key=OPS)

    assert registry.audit == [
        ("added", "web-1", ("ops", "127.0.0.1")),
        ("changed", "web-1", ("ops", "127.0.0.1")),
        ("deleted", "web-1", ("ops", "127.0.0.1")),
    ]
