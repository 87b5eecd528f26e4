"""The index of services answers with what all nodes say, right after any change."""

import asyncio

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clients.message import MAX_BODY_BYTES, Heartbeat
from registry.nodes.changes import REGISTRY, ChangeKind, NodeChange
from registry.nodes.directory import Directory
from registry.prometheus.index import TargetIndex
from registry.prometheus.targets import TargetOptions
from registry.responses.slices import TimeSlices
from tests.support.registry import in_process as running
from tests.support.registry.indexed_nodes import PLAIN, IndexedNodes, entry_of, joined

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


LABELS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("@:-[]%."), min_size=1
)


@pytest.mark.slow
@given(
    labels=st.lists(LABELS | LABELS.map(lambda text: f"prometheus:x{text}"[:1024]), max_size=8),
    kv=st.dictionaries(LABELS.map(lambda text: text[:256]), LABELS, max_size=3),
    own_only=st.booleans(),
)
@example(labels=["prometheus:x@0"], kv={}, own_only=False)
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
            index.on_change(NodeChange(ChangeKind.ADDED, entry, REGISTRY))
        nested = await index.answer("x", "nested")
        hosts = msgspec.json.decode(joined(nested), type=list[list[dict[str, object]]])
        flat = msgspec.json.decode(joined(await index.answer("x", "flat")))
        assert sum(map(len, hosts)) == len(flat)  # a host may name several instances
        assert (await index.explain(entries[0], "x")).listed == (len(hosts) == 2)

    asyncio.run(ask())


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
        assert groups[0]["labels"] == {
            "__meta_rollcall_hostname": "big",
            "__meta_rollcall_address": "127.0.0.1",
        }
        assert groups[-1]["labels"]["__meta_rollcall_kv_rack"] == "r1"
        metrics = (await service.ask("GET", "/metrics")).body.decode()
        assert 'rollcall_registry_target_labels_altered{reason="size"} 1.0' in metrics
        reported = await service.get("/prometheus/x?explain=big")
        assert reported["listed"]
        assert [remark["reason"] for remark in reported["remarks"]] == ["size"]
        assert "1000 groups" in reported["remarks"][0]["text"]


@pytest.mark.slow
async def test_a_node_of_one_large_group_keeps_all_that_it_says() -> None:
    async with running.in_process_registry() as service:
        kv = {f"k{number}": "v" * 16_384 for number in range(62)}
        await service.post("big", ["prometheus:x"], kv)

        [group] = await service.get("/prometheus/x?format=http_sd")

        assert len(group["labels"]) == 2 + 62
