"""The memory that all nodes may take: rejected beyond it, and truly what they take."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import CapacityReached
from registry.nodes.limits import MIB, Capacity
from registry.store.protocol import DoneCallback, Guard, Row
from tests.support.registry.in_process import (
    NO_LIMITS,
    InProcessRegistry,
    in_process_registry,
)
from tests.support.registry.stores.memory_store import MemoryStore
from tests.support.run.release import some_of

pytestmark = pytest.mark.slow

LIMITS = msgspec.structs.replace(NO_LIMITS, max_mib=1)
LARGE = "x" * 1000
Labels = Callable[[int], list[str]]


async def fill(registry: InProcessRegistry) -> list[str]:
    """Add nodes until one is rejected; return those that were accepted."""
    accepted: list[str] = []
    for number in range(1000):
        hostname = f"web-{number:03}"
        answer = await registry.post(hostname, [LARGE])
        if answer.status != 200:
            assert answer.status == 507
            assert answer.headers["Retry-After"] == "60"
            assert "nodes.max_mib" in answer.json()["message"]
            return accepted
        accepted.append(hostname)
    raise AssertionError("the bound was not kept")


async def used(registry: InProcessRegistry) -> float:
    lines = (await registry.ask("GET", "/metrics")).body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("rollcall_registry_nodes_bytes ")]
    return float(line.split()[1])


async def test_beyond_the_bound_a_node_is_507_and_those_known_go_on() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        accepted = await fill(registry)
        assert 100 < len(accepted) < 600
        registry.clock.pass_seconds(30)

        assert (await registry.post(accepted[0], [LARGE])).status == 200
        assert (await registry.post(accepted[0], [LARGE[:-1] + "y"])).status == 200
        assert (await registry.post(accepted[0], [LARGE * 2])).status == 400
        assert (await registry.post(accepted[0], [LARGE, LARGE[1:]])).status == 507
        assert (await registry.counts())["capacity"] == 2
        assert [node["hostname"] for node in await registry.get("/nodes")] == accepted
        for hostname in accepted:
            await registry.ask("DELETE", f"/nodes/{hostname}")
        assert await used(registry) == 0
        assert len(await fill(registry)) == len(accepted)


async def test_whoever_fills_the_registry_leaves_each_known_node_room_to_grow() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        await registry.post("db-1", ["service:db"])
        greedy = await fill(registry)
        for hostname in greedy:
            for size in range(100, 1000, 100):
                if (await registry.post(hostname, [LARGE, "x" * size])).status != 200:
                    break
        assert await used(registry) > 0.9 * LIMITS.max_mib * MIB
        assert (await registry.post(greedy[-1], [LARGE, "y" * 1000])).status == 507
        for state in ("running", "unreachable") * 50:
            node = await registry.post("db-1", ["service:db", "app:shop"], {"docker": state})
            assert node.status == 200
        assert (await registry.get("/nodes/db-1"))[0]["kv"] == {"docker": "unreachable"}
        assert await used(registry) <= LIMITS.max_mib * MIB


async def test_a_known_host_whose_growth_is_rejected_is_not_forgotten() -> None:
    async with in_process_registry(limits=LIMITS, expire_after=100) as registry:
        accepted = await fill(registry)
        registry.clock.pass_seconds(60)
        assert (await registry.post(accepted[0], [LARGE, LARGE[1:]])).status == 507
        registry.clock.pass_seconds(60)

        assert [node["hostname"] for node in await registry.get("/nodes")] == accepted[:1]


async def test_what_is_not_stored_yet_counts() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        answers = await asyncio.gather(
            *[registry.post(f"web-{number}", [LARGE]) for number in range(600)]
        )
        accepted = [answer for answer in answers if answer.status == 200]
        assert await used(registry) <= 1024 * 1024
        assert len(await registry.get("/nodes")) == len(accepted)


async def test_what_the_store_takes_for_hosts_counts() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        assert (await registry.post("web-1", [LARGE])).status == 200
        before = await used(registry)
        registry.store.memory_bytes = 1024 * 1024

        assert await used(registry) == before + 1024 * 1024
        assert (await registry.post("web-2")).status == 507
        assert (await registry.post("web-1", [LARGE])).status == 200


class OvertakenStore(MemoryStore):
    """A store in which `overtake` does what another registry does before each put takes effect."""

    def __init__(self) -> None:
        super().__init__()
        self.overtake: Callable[[], None] = lambda: None

    def put(self, row: Row, done: DoneCallback, guard: Guard | None = None) -> asyncio.Future[None]:
        self.overtake()
        self.failure = guard() if guard is not None else None
        return super().put(row, done, guard)


async def test_room_that_other_registries_took_meanwhile_is_missing() -> None:
    store = OvertakenStore()
    async with in_process_registry(limits=LIMITS, store=store) as registry:
        await registry.post("web-1", [LARGE])
        before = await used(registry)

        store.overtake = lambda: store.shared.deleted("web-1", expired=False)
        assert (await registry.post("web-1", [LARGE[:-1] + "y"])).status == 200
        assert await used(registry) == before

        def take_all() -> None:
            store.shared.deleted("web-1", expired=False)
            store.memory_bytes = 2 * 1024 * 1024

        store.overtake = take_all
        assert (await registry.post("web-1", [LARGE])).status == 507
        assert (await registry.counts())["capacity"] == 1
        assert await used(registry) == store.memory_bytes


async def test_what_the_store_rejects_takes_nothing() -> None:
    async with in_process_registry(limits=LIMITS) as registry:
        await registry.post("web-1", [LARGE])
        before = await used(registry)
        registry.store.failure = OSError("no")
        for number in range(5):
            assert (await registry.post(f"web-{number}", [LARGE, "b"])).status == 500
        registry.store.failure = None

        assert await used(registry) == before


async def test_a_store_that_is_larger_than_the_bound_is_loaded() -> None:
    async with in_process_registry(limits=NO_LIMITS) as registry:
        for number in range(1000):
            await registry.post(f"web-{number:03}", [LARGE])
        rows = list(registry.store.rows.values())

    async with in_process_registry(store=MemoryStore(rows), limits=LIMITS) as registry:
        assert len(await registry.get("/nodes")) == 1000
        assert (await registry.post("web-000", [LARGE])).status == 200
        assert (await registry.post("new")).status == 507


SHAPES: dict[str, tuple[int, Labels]] = {
    "nothing": (2000, lambda _: []),
    "large": (300, lambda n: [f"{n}" + "x" * 1000 for _ in range(1)] + ["y" * 1000]),
    "labels": (100, lambda n: [f"label-{n}-{i}" for i in range(500)]),
    "one service": (2000, lambda n: ["service:web", f"rack:{n}", "prometheus:node:port:7656"]),
    "shared services": (100, lambda _: [f"prometheus:s{i}" for i in range(100)]),
    "own services": (50, lambda n: [f"prometheus:s{n}-{i}" for i in range(100)]),
    "odd names": (50, lambda n: [f'prometheus:"\\{n}-{i}:a:b' for i in range(100)]),
    "instances": (50, lambda _: [f"prometheus:s@i{i}:port:{i + 1}" for i in range(100)]),
    "keys": (50, lambda _: [f"prometheus:s:key{i}:v" for i in range(100)]),
}


@pytest.mark.parametrize(
    "shape",
    some_of(SHAPES, "own services", reason="tracemalloc takes some seconds a shape"),
)
async def test_nodes_take_no_more_than_is_counted_and_not_much_less(shape: str) -> None:
    count, labels = SHAPES[shape]
    async with in_process_registry(limits=NO_LIMITS, level="error") as registry:
        components = registry.components
        await registry.post("warm", labels(0))
        gc.collect()
        tracemalloc.start()
        before = components.nodes.limits.capacity.used_bytes
        for number in range(count):
            await registry.post(f"host-{number:06}.example.com", labels(number))
        await components.index.refresh()
        registry.store.rows.clear()  # a store keeps nothing in memory
        answer = await components.index.answer("node", "flat")
        await components.queries.prepare_search()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        counted = components.nodes.limits.capacity.used_bytes - before

    assert answer.size
    assert counted / 2.5 < taken < counted


# A small node, a large one, and one that is as large.
SIZES_OF_CHANGE = [(0, 0, 0), (150_000, 0, 0), (150_000, 0, 0)]
SIZES = [0, 4000, 9000, 60_000]
SHAPE = st.tuples(st.sampled_from(SIZES), st.integers(0, 300), st.integers(0, 3))
# The changes of a host that wait for the store together; None is a deletion.
STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(SHAPE | st.none(), max_size=3)), max_size=10
)


def encoded_node(size: int, services: int, first: int) -> bytes:
    labels = [f"prometheus:s{number}:k:v" for number in range(first, first + services)]
    return b'{"labels":%b,"kv":{"k":"%b"},"last_update":' % (
        msgspec.json.encode(labels),
        b"x" * size,
    )


@given(STEPS)
def test_what_changed_nodes_take_is_what_new_ones_would(
    steps: list[tuple[str, list[tuple[int, int, int] | None]]],
) -> None:
    capacity, known = Capacity(), dict[str, bytes]()
    for hostname, shapes in steps:
        nodes = [None if shape is None else encoded_node(*shape) for shape in shapes]
        reserved = [
            node and capacity.reserve(hostname, node, known.get(hostname)) for node in nodes
        ]
        for node, reservation in zip(nodes, reserved, strict=True):
            before = known.pop(hostname, None)
            if node and reservation:
                capacity.release(reservation)
                capacity.replace(hostname, node, before, reservation)
                known[hostname] = node
            elif before is not None:
                capacity.forget(hostname, before)
    loaded = Capacity()
    loaded.fill(known.items())

    assert capacity.used_bytes == loaded.used_bytes


def counted(nodes: Mapping[str, bytes]) -> Any:
    """Return what nodes are estimated to take; each of them may be rounded."""
    capacity = Capacity()
    capacity.fill(nodes.items())
    return pytest.approx(capacity.used_bytes, abs=len(nodes))


def test_if_another_registry_changes_a_node_its_new_growth_is_reserved() -> None:
    small, large, changed = [encoded_node(*shape) for shape in SIZES_OF_CHANGE]
    capacity = Capacity(1)
    hosts = ["a", "b"]
    capacity.fill([(host, large) for host in hosts])
    reserved = {host: capacity.reserve(host, changed, large) for host in hosts}
    for host in hosts:
        capacity.replace(host, small, large, None)
        capacity.renew(host, changed, small, reserved[host])

    assert capacity.used_bytes == counted(dict.fromkeys(hosts, changed))
    with pytest.raises(CapacityReached):
        capacity.reserve("c", large, None)

    for host in hosts:
        capacity.release(reserved[host])
        capacity.replace(host, changed, small, reserved[host])
    assert capacity.used_bytes == counted(dict.fromkeys(hosts, changed))


def test_if_another_registry_stores_a_node_as_large_nothing_more_is_reserved() -> None:
    small, large, changed = [encoded_node(*shape) for shape in SIZES_OF_CHANGE]
    capacity = Capacity(1)
    reserved = capacity.reserve("a", changed, None)
    capacity.replace("a", large, None, None)
    capacity.renew("a", changed, large, reserved)

    assert capacity.used_bytes == counted({"a": large})
    capacity.release(capacity.reserve("b", large, None))
    capacity.release(reserved)
    capacity.replace("a", small, large, None)
    assert capacity.used_bytes == counted({"a": small})


def test_what_finds_no_room_any_more_keeps_its_reservation_until_it_is_released() -> None:
    small, large, changed = [encoded_node(*shape) for shape in SIZES_OF_CHANGE]
    capacity = Capacity(1)
    reserved = capacity.reserve("a", small, None)
    for host in ("b", "c", "d"):
        capacity.replace(host, large, None, None)

    with pytest.raises(CapacityReached):
        capacity.renew("a", changed, None, reserved)

    assert capacity.used_bytes == counted({"a": small, **dict.fromkeys(["b", "c", "d"], large)})
    capacity.release(reserved)
    assert capacity.used_bytes == counted(dict.fromkeys(["b", "c", "d"], large))
