"""The index of services alone: right after any change, cheap to keep, and never long at work."""

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.message import MAX_BODY_BYTES, Heartbeat
from registry.nodes.directory.directory import Directory, Entry, encode_document
from registry.nodes.directory.events import REGISTRY, Change, ChangeKind
from registry.prometheus.index import TargetIndex
from registry.prometheus.offers import Offer
from registry.prometheus.target_list import AnswerLru, Service, TargetFormat, TargetList
from registry.prometheus.targets import TargetOptions
from registry.responses.time_slices import TimeSlices
from registry.store.protocol import Row
from tests.support.machine.processor import slowdown
from tests.support.registry import in_process as running
from tests.support.registry.encoded_runs import run_of

PLAIN = ("prometheus:node",)


class IndexedNodes:
    """Nodes, and the index of their services."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.index = TargetIndex(
            directory=self.directory, target_options=TargetOptions(), slices=TimeSlices()
        )

    def report(self, hostname: str, labels: Sequence[str], **kv: str) -> None:
        """Take what a node says now."""
        entry = entry_of(hostname, Heartbeat(labels=list(labels), kv=kv))
        self.directory.put(entry, heard=0.0)
        self.index.on_change(Change(ChangeKind.CHANGED, entry, REGISTRY))

    def remove(self, hostname: str) -> None:
        """Forget a node."""
        entry = self.directory.remove(hostname)
        if entry is not None:
            self.index.on_change(Change(ChangeKind.DELETED, entry, REGISTRY))

    async def ask(self, service: str, target_format: TargetFormat = "flat") -> bytes:
        """Return an answer."""
        return joined(await self.index.answer(service, target_format))


def entry_of(hostname: str, said: Heartbeat) -> Entry:
    """Return the entry of a host that said this."""
    return Entry(Row(hostname, encode_document(said), 1_700_000_000, "192.0.2.1"), heard=0.0)


def joined(answer: TargetList) -> bytes:
    """Return the whole answer."""
    return b"".join(answer.pieces())


@contextmanager
def loop_iterations() -> Iterator[list[None]]:
    """Count the turns that another task gets meanwhile."""
    turns: list[None] = []

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    task = asyncio.ensure_future(count())
    try:
        yield turns
    finally:
        task.cancel()


HOSTNAMES = st.sampled_from([f"h{number:03}" for number in range(120)])
SAID = st.lists(st.sampled_from(["prometheus:a", "prometheus:b@1", "prometheus:b@2", "x"]))
CHANGES = st.lists(st.tuples(HOSTNAMES, st.none() | SAID), max_size=150)


@pytest.mark.slow
@given(batches=st.lists(CHANGES, max_size=3))
def test_after_any_changes_the_answers_are_those_of_a_new_index(
    batches: list[list[tuple[str, list[str] | None]]],
) -> None:
    async def run() -> None:
        fleet, fresh = IndexedNodes(), IndexedNodes()
        said: dict[str, list[str]] = {}
        for batch in batches:
            for hostname, labels in batch:
                if labels is None:
                    fleet.remove(hostname)
                    said.pop(hostname, None)
                else:
                    fleet.report(hostname, labels)
                    said[hostname] = labels
            await fleet.ask("a")
            await fleet.ask("b", "nested")
        for hostname, labels in said.items():
            fresh.report(hostname, labels)
        for name in ("a", "b"):
            assert await fleet.ask(name) == await fresh.ask(name)
            assert await fleet.ask(name, "nested") == await fresh.ask(name, "nested")
        assert len(fleet.index) == len(fresh.index)  # services that no node offers any more

    asyncio.run(run())


@pytest.mark.slow
async def test_after_one_change_nearly_all_of_an_answer_is_what_it_was() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN, rack="r1")
    before = await fleet.index.answer("node", "flat")
    fleet.report("h1000", PLAIN, rack="r2")

    after = await fleet.index.answer("node", "flat")

    assert len(msgspec.json.decode(joined(after))) == 2000
    assert after.digest != before.digest
    assert 0 < before.pinned().size < len(joined(after)) / 20


@pytest.mark.slow
async def test_what_several_old_answers_share_counts_once_and_until_the_last_is_gone() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN, rack="r0")
    first = await fleet.index.answer("node", "flat")
    older = []
    for rack in range(1, 6):
        fleet.report("h1000", PLAIN, rack=f"r{rack}")
        older.append(await fleet.index.answer("node", "flat"))
    fleet.report("h0001", PLAIN, rack="r1")
    one_block = first.pinned().size // len(older)
    assert 0 < one_block < first.size / 20

    last = await fleet.index.answer("node", "flat")

    assert {answer.pinned() for answer in older} == {last.pinned()}
    # Five versions of one block, and one version of another, which all of them share.
    assert 5.9 < last.pinned().size / one_block < 6.1
    older.clear()
    assert 1.9 < last.pinned().size / one_block < 2.1
    del first
    assert last.pinned().size == 0


@pytest.mark.slow
async def test_a_list_that_is_being_made_while_its_nodes_change_counts() -> None:
    fleet = IndexedNodes()
    for number in range(2000):
        fleet.report(f"h{number:04}", PLAIN)
    await fleet.index.refresh()
    asking = asyncio.create_task(fleet.index.answer("node", "flat"))
    await asyncio.sleep(0)
    while not asking.done():
        for number in range(0, 2000, 10):
            fleet.report(f"h{number:04}", PLAIN)
        fleet.index.refresh_some()
        await asyncio.sleep(0)

    answer = await asking

    assert answer.pinned().size > answer.size / 2
    fleet.remove("h0000")
    await fleet.index.refresh()
    del answer, asking
    assert (await fleet.index.answer("node", "flat")).pinned().size == 0


@pytest.mark.slow
async def test_others_get_their_turn_between_nodes_of_thousands_of_services() -> None:
    fleet = IndexedNodes()
    for node in range(20):
        fleet.report(f"h{node}", [f"prometheus:s{number}" for number in range(500)])

    with loop_iterations() as turns:
        await fleet.ask("s1")

    assert len(turns) >= 20


@pytest.mark.slow
async def test_one_call_reads_a_few_milliseconds_worth_of_services() -> None:
    fleet = IndexedNodes()
    for node in range(20):
        fleet.report(f"h{node}", [f"prometheus:s{number}:a-b:c" for number in range(500)])

    calls = 0
    while fleet.index.remarks["mended"] < 20 * 500:
        fleet.index.refresh_some()
        calls += 1

    assert calls > 10


# A node has at most 4,096 labels, and a body of a mebibyte.
LARGE_NODES: dict[str, list[str]] = {
    "services": [f"prometheus:s{n}:port:{n + 1}" for n in range(4096)],
    "instances": [f"prometheus:x@{n}:port:{n + 1}" for n in range(4096)],
    "hosts": [f"prometheus:x:host:10.0.{n >> 8}.{n & 255}" for n in range(4096)],
    "no hosts": [f"prometheus:x:host:fe80::{n:x}::1%" for n in range(4096)],
    "addresses": [f"prometheus:x:host:fe80::{n:x}" for n in range(4096)],
    "keys": [f"prometheus:x:k-{n}:{'v' * 230}" for n in range(4096)],
    "odd names": [f"prometheus:x:{'-' * 230}{n}:v" for n in range(4096)],
    "for relabelling": ["prometheus:x", *[f"{'é-' * 80}{n}:v" for n in range(4095)]],
}
MAX_STEP_SECONDS = 0.010
# A processor that others use as well may need longer for a step at times, but not each time.
ATTEMPTS = 5


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_NODES)
@pytest.mark.usefixtures("no_garbage_collection")
def test_no_step_takes_long_however_large_a_node_is(name: str) -> None:
    assert min(longest_step(LARGE_NODES[name]) for _ in range(ATTEMPTS)) < MAX_STEP_SECONDS


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Measure no garbage collection: its time depends on all that the tests before have left."""
    gc.disable()
    yield
    gc.enable()


def longest_step(labels: list[str]) -> float:
    """Return the longest CPU time of a step while a node is read, listed and explained.

    On a processor that is slower than the reference, its seconds count for less.
    """
    directory, steps = Directory(), IndexSteps()
    entry = entry_of("h1", Heartbeat(labels=labels, kv={}))
    directory.put(entry, heard=0.0)
    index = TargetIndex(directory=directory, target_options=TargetOptions(), slices=steps)
    index.on_change(Change(ChangeKind.ADDED, entry, REGISTRY))

    async def ask() -> None:
        service = "x" if any("prometheus:x" in label for label in labels) else "s1"
        answers = [await index.answer(service, "flat"), await index.answer(service, "nested")]
        assert all(answer.size > len("[]") for answer in answers) or "%" in labels[0]
        await index.explain(entry, service)

    asyncio.run(ask())
    return steps.longest / slowdown()


class IndexSteps(TimeSlices):
    """Carries out steps at once, and measures the CPU time of each."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0

    async def run(self, steps: Iterable[object]) -> None:
        iterator, is_over = iter(steps), False
        while not is_over:
            started = time.thread_time()
            is_over = next(iterator, self) is self
            self.longest = max(self.longest, time.thread_time() - started)


LABELS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("@:-[]%."), min_size=1
)


@pytest.mark.slow
@given(
    labels=st.lists(LABELS | LABELS.map(lambda text: f"prometheus:x{text}"[:1024]), max_size=8),
    kv=st.dictionaries(LABELS.map(lambda text: text[:256]), LABELS, max_size=3),
    own_only=st.booleans(),
)
def test_whatever_a_node_says_it_is_read_and_so_are_those_after_it(
    labels: list[str], kv: dict[str, str], *, own_only: bool
) -> None:
    async def ask() -> None:
        directory = Directory()
        index = TargetIndex(
            directory=directory,
            target_options=TargetOptions(own_only=own_only),
            slices=TimeSlices(),
        )
        body = msgspec.json.encode({"labels": [*labels, "prometheus:x"], "kv": kv})
        said = msgspec.json.decode(body, type=Heartbeat)
        entries = [entry_of(hostname, said) for hostname in ("h1", "h2")]
        for entry in entries:
            directory.put(entry, heard=0.0)
            index.on_change(Change(ChangeKind.ADDED, entry, REGISTRY))
        nested = await index.answer("x", "nested")
        hosts = msgspec.json.decode(joined(nested), type=list[list[dict[str, object]]])
        assert len(hosts) == len(msgspec.json.decode(joined(await index.answer("x", "flat"))))
        assert (await index.explain(entries[0], "x")).listed == (len(hosts) == 2)

    asyncio.run(ask())


@pytest.mark.slow
async def test_others_get_their_turn_between_nodes_with_much_to_repeat() -> None:
    fleet = IndexedNodes()
    for node in range(20):
        fleet.report(f"h{node}", PLAIN, **{f"k{number}": "v" * 16_000 for number in range(30)})
    await fleet.index.refresh()

    with loop_iterations() as turns:
        await fleet.ask("node")

    assert len(turns) >= 10


@pytest.mark.slow
async def test_an_answer_is_finished_although_nodes_change_all_the_time() -> None:
    fleet = IndexedNodes()
    for number in range(3000):
        fleet.report(f"h{number:04}", PLAIN)

    async def change() -> None:
        for number in range(1_000_000):
            fleet.report(f"h{number % 3000:04}", PLAIN, number=str(number))
            await asyncio.sleep(0)

    changing = asyncio.ensure_future(change())
    try:
        body = await asyncio.wait_for(fleet.ask("node"), 60)
    finally:
        changing.cancel()

    assert len(msgspec.json.decode(body)) == 3000


@pytest.mark.parametrize("iterations", range(12))
async def test_a_service_whose_last_node_left_is_a_new_one_when_another_comes(
    iterations: int,
) -> None:
    fleet = IndexedNodes()
    fleet.report("h1", PLAIN)
    asking = [asyncio.create_task(fleet.ask("node")) for _ in range(2)]
    for _ in range(iterations):
        await asyncio.sleep(0)
    fleet.remove("h1")
    await fleet.index.refresh()
    fleet.report("h2", PLAIN)

    assert b"h2" in await fleet.ask("node")
    await asyncio.gather(*asking)


def test_the_answers_asked_for_longest_ago_are_let_go_of_and_the_last_is_kept() -> None:
    kept = AnswerLru(limit=1000)
    services = {name: offering(name) for name in "abc"}

    kept.record_use(services["a"], "flat", 400)
    kept.record_use(services["b"], "flat", 400)
    kept.record_use(services["a"], "flat", 500)
    kept.record_use(services["c"], "flat", 400)
    assert [is_kept(services[name]) for name in "abc"] == [True, False, True]

    kept.record_use(services["c"], "flat", 5000)
    assert [is_kept(services[name]) for name in "abc"] == [False, False, True]


def offering(name: str) -> Service:
    service = Service(name)
    service.put(Offer("h1", [(b'["h1:1"]', b"{}")], []))
    service.offers.blocks()[0].runs["flat"] = run_of([b"{}"])
    return service


def is_kept(service: Service) -> bool:
    return "flat" in service.offers.blocks()[0].runs


def largest_legal_body() -> bytes:
    heartbeat = {
        "labels": [f"prometheus:x@{number}:port:{1 + number}" for number in range(1000)],
        "kv": {f"k{number}": "v" * 16_384 for number in range(62)},
    }
    body = msgspec.json.encode(heartbeat)
    assert MAX_BODY_BYTES - 20_000 < len(body) <= MAX_BODY_BYTES
    return body


@pytest.mark.slow
async def test_a_node_of_many_instances_does_not_repeat_itself_without_bound() -> None:
    async with running.in_process_registry() as service:
        await service.post("good", ["prometheus:x"], {"rack": "r1"})
        posted = await service.ask("POST", "/nodes/big", data=largest_legal_body())
        assert posted.status == 200

        answer = await service.ask("GET", "/prometheus/x?format=http_sd")

        assert len(answer.body) < MAX_BODY_BYTES
        groups = answer.json()
        ports = sorted(int(group["targets"][0].partition(":")[2]) for group in groups)
        assert ports == [*range(1, 1001), 9100]
        assert groups[0]["labels"] == {"__meta_rollcall_hostname": "big"}
        assert groups[-1]["labels"]["__meta_rollcall_kv_rack"] == "r1"
        metrics = (await service.ask("GET", "/metrics")).body.decode()
        assert 'rollcall_registry_target_labels_altered{reason="size"} 1.0' in metrics
        told = await service.get("/prometheus/x?explain=big")
        assert told["listed"]
        assert [remark["reason"] for remark in told["remarks"]] == ["size"]
        assert "1000 groups" in told["remarks"][0]["text"]


@pytest.mark.slow
async def test_a_node_of_one_large_group_keeps_all_that_it_says() -> None:
    async with running.in_process_registry() as service:
        kv = {f"k{number}": "v" * 16_384 for number in range(62)}
        await service.post("big", ["prometheus:x"], kv)

        [group] = await service.get("/prometheus/x?format=http_sd")

        assert len(group["labels"]) == 2 + 62


@pytest.mark.slow
async def test_a_service_that_no_node_offers_any_more_takes_no_memory() -> None:
    fleet = IndexedNodes()
    for number in range(100):
        fleet.report("web-1", [f"prometheus:s{number}"])
        await fleet.ask(f"s{number}")

    assert len(fleet.index) == 1
    fleet.remove("web-1")
    await fleet.index.refresh()
    assert len(fleet.index) == 0
    assert await fleet.ask("s99") == b"[]"
