"""GET /nodes/HOST/explain: what becomes of a node's labels, for all its services at once."""

import pytest

from registry.prometheus.targets import MAX_REPEATED, TargetOptions
from tests.support.registry.in_process import InProcessRegistry, in_process_registry


async def test_all_services_with_what_was_left_out(registry: InProcessRegistry) -> None:
    await registry.post(
        "h1",
        [
            *("prometheus:web:host:a b", "prometheus:web:a-b:c", "prometheus:web:job:x"),
            *("prometheus:web@b:port:99999", "prometheus:db", "prometheus:db:tier:front", "other"),
        ],
    )
    registry.clock.pass_seconds(12)

    reported = await registry.get("/nodes/H1./explain")

    web = reported["services"][1]
    whys = [left_out.pop("why") for left_out in web["left_out"]]
    assert reported == {
        "hostname": "h1",
        "address": "127.0.0.1",
        "stale": False,
        "age_seconds": 12.0,
        "warnings": [],
        "services": [
            {
                "service": "db",
                "targets": [{"target": "h1:9100", "labels": {"tier": "front"}}],
                "left_out": [],
            },
            {
                "service": "web",
                "targets": [],
                "left_out": [
                    {"target": "a b", "reason": "host"},
                    {"label": "a-b", "reason": "sanitized"},
                    {"label": "job", "reason": "held_back"},
                    {"target": "h1:99999", "reason": "port"},
                ],
            },
        ],
    }
    remarks = (await registry.get("/prometheus/web?explain=h1"))["remarks"]
    assert whys == [remark["text"] for remark in remarks]
    registry.clock.pass_seconds(90)
    assert (await registry.get("/nodes/h1/explain"))["stale"] is True


async def test_a_target_that_is_foreign_is_left_out() -> None:
    async with in_process_registry(target_options=TargetOptions(own_only=True)) as registry:
        await registry.post("h1", ["prometheus:web:host:10.9.9.9", "prometheus:web:host:h1"])
        [web] = (await registry.get("/nodes/h1/explain"))["services"]
        assert web["left_out"] == [
            {
                "target": "10.9.9.9",
                "reason": "foreign",
                "why": (
                    "target left out: '10.9.9.9' is not this node; while prometheus.targets is"
                    " `own`, a node may only name h1, or 127.0.0.1, where its heartbeat came from"
                ),
            }
        ]
        assert [found["target"] for found in web["targets"]] == ["h1:9100"]


async def test_a_node_without_services_has_none(registry: InProcessRegistry) -> None:
    await registry.post("h1", ["a:b"])
    assert (await registry.get("/nodes/h1/explain"))["services"] == []


async def test_wrong_requests(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/nodes/nobody/explain")).status == 404
    assert (await registry.ask("GET", "/nodes/a%20b/explain")).status == 400
    assert (await registry.ask("GET", "/nodes/h1/explain?service=web")).status == 400
    assert (await registry.ask("GET", "/nodes/h1/explain", key=None)).status == 401
    assert (await registry.ask("POST", "/nodes/h1/explain")).status == 405


@pytest.mark.slow
async def test_many_targets_with_many_labels_do_not_multiply(registry: InProcessRegistry) -> None:
    labels = [f"prometheus:web:host:h{number}" for number in range(2000)]
    labels += [f"prometheus:web:l{number}:{'v' * 200}" for number in range(2000)]
    posted = await registry.post("big", [*labels, "prometheus:web@b:x:y"])
    assert posted.status == 200

    answer = await registry.ask("GET", "/nodes/big/explain")

    assert len(answer.body) < MAX_REPEATED
    [web] = answer.json()["services"]
    assert len(web["targets"]) == 2001
    assert [left_out["label"] for left_out in web["left_out"]] == ["*"]
    assert web["targets"][0]["labels"] == {}


async def test_labels_that_look_misspelt_are_warned_of(registry: InProcessRegistry) -> None:
    await registry.post("h1", ["Prometheus:web", "prometheus:db:prot:9100", "service:web"])

    warnings = (await registry.get("/nodes/h1/explain"))["warnings"]
    remarks = (await registry.get("/prometheus/web?explain=h1"))["remarks"]

    assert warnings == [
        {"label": "Prometheus:web", "why": "it is no directive; did you mean prometheus:web?"},
        {"label": "prometheus:db:prot:9100", "why": "did you mean prometheus:db:port:9100?"},
    ]
    assert remarks == [
        {"reason": "misspelt", "subject": each["label"], "text": each["why"]} for each in warnings
    ]


async def test_of_thousands_of_misspelt_labels_the_first_are_reported(
    registry: InProcessRegistry,
) -> None:
    await registry.post("h1", [f"Prometheus:s{number}" for number in range(1000)])

    assert len((await registry.get("/nodes/h1/explain"))["warnings"]) == 100
