"""GET /prometheus/{service}."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry.prometheus.targets import TargetOptions
from tests.support.examples import share_of
from tests.support.registry import http_sd
from tests.support.registry.in_process import InProcessRegistry, ManualClocks, in_process_registry

SCRAPER = {"X-Prometheus-Refresh-Interval-Seconds": "60"}


async def test_the_documented_form_has_an_array_for_each_node_by_hostname(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-2", ["prometheus:web"])
    await registry.post("web-1", ["prometheus:web@b:port:2", "prometheus:web@a:env:x"])
    await registry.post("db-1", ["prometheus:db"])

    answer = await registry.ask("GET", "/prometheus/web")

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == [
        [
            {"Targets": ["web-1:9100"], "Labels": {"env": "x"}},
            {"Targets": ["web-1:2"], "Labels": {}},
        ],
        [{"Targets": ["web-2:9100"], "Labels": {}}],
    ]


@pytest.mark.parametrize(
    ("query", "headers"), [("", SCRAPER), ("?format=http_sd", {}), ("?format=http_sd", SCRAPER)]
)
async def test_a_scraper_gets_the_flat_form(
    registry: InProcessRegistry, query: str, headers: dict[str, str]
) -> None:
    await registry.post("web-1", ["prometheus:web:env:x"], {"rack": "r1"})

    answer = await registry.ask("GET", f"/prometheus/web{query}", headers=headers)

    assert answer.json() == [
        {
            "targets": ["web-1:9100"],
            "labels": {
                "env": "x",
                "__meta_rollcall_hostname": "web-1",
                "__meta_rollcall_address": "127.0.0.1",
                "__meta_rollcall_kv_rack": "r1",
            },
        }
    ]


async def test_the_documented_form_can_be_had_by_a_scraper_too(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["prometheus:web"])

    answer = await registry.ask("GET", "/prometheus/web?format=nested", headers=SCRAPER)

    assert answer.json() == [[{"Targets": ["web-1:9100"], "Labels": {}}]]


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "?format=http_sd", "?format=nested"])
@pytest.mark.parametrize("name", ["none", "a:b", "web@a", "%20", "a%2Fb", "we%62x"])
async def test_a_service_that_nobody_offers_is_an_empty_array(
    registry: InProcessRegistry, name: str, query: str
) -> None:
    await registry.post("web-1", ["prometheus:web@a:port:1"])

    assert (await registry.ask("GET", f"/prometheus/{name}{query}")).body == b"[]"


@pytest.mark.parametrize(
    "query", ["?format=flat", "?format=", "?x=1", "?format=nested&format=nested"]
)
async def test_a_query_that_is_not_understood_is_400(
    registry: InProcessRegistry, query: str
) -> None:
    assert (await registry.ask("GET", f"/prometheus/web{query}")).status == 400


async def test_vary_names_what_the_form_depends_on(registry: InProcessRegistry) -> None:
    answer = await registry.ask("GET", "/prometheus/web")

    assert answer.headers["Vary"] == "X-Prometheus-Refresh-Interval-Seconds, Accept-Encoding"


@pytest.mark.slow
async def test_heartbeats_leave_the_bytes_as_they_are(registry: InProcessRegistry) -> None:
    for hostname in ("b", "a", "c"):
        await registry.post(hostname, ["prometheus:web:env:x", "z:1"], {"k": "v"})
    first = await registry.ask("GET", "/prometheus/web", headers=SCRAPER)
    for hostname in ("c", "a"):
        registry.clock.pass_seconds(100)
        await registry.post(hostname, ["prometheus:web:env:x", "z:1"], {"k": "v"})

    second = await registry.ask("GET", "/prometheus/web", headers=SCRAPER)

    assert second.body == first.body
    assert second.headers["ETag"] == first.headers["ETag"]
    assert b"last_update" not in first.body


async def test_registries_that_know_the_same_give_the_same_bytes() -> None:
    answers = []
    for order in (("a", "b"), ("b", "a")):
        async with in_process_registry() as registry:
            for hostname in order:
                await registry.post(hostname, ["prometheus:web:y:1", "prometheus:web:x:2"])
            answers.append(await registry.ask("GET", "/prometheus/web", headers=SCRAPER))

    assert answers[0].body == answers[1].body
    assert answers[0].headers["ETag"] == answers[1].headers["ETag"]


async def test_both_forms_have_etags_of_their_own_and_answer_304(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["prometheus:web"])
    flat = await registry.ask("GET", "/prometheus/web", headers=SCRAPER)
    nested = await registry.ask("GET", "/prometheus/web")
    etag = flat.headers["ETag"]

    assert etag != nested.headers["ETag"]
    again = await registry.ask(
        "GET", "/prometheus/web", headers=SCRAPER | {"If-None-Match": f'W/"x", {etag}'}
    )
    assert (again.status, again.body) == (304, b"")
    other = await registry.ask("GET", "/prometheus/web", headers={"If-None-Match": etag})
    assert other.status == 200


async def test_without_being_asked_nothing_is_a_304_or_compressed(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["prometheus:web"])
    for _ in range(2):
        answer = await registry.ask("GET", "/prometheus/web", headers=SCRAPER)
        assert answer.status == 200
        assert "Content-Encoding" not in answer.headers


@pytest.mark.slow
async def test_what_a_node_changes_is_seen_at_once(registry: InProcessRegistry) -> None:
    async def targets() -> Any:
        return [g["targets"] for g in await registry.get("/prometheus/web?format=http_sd")]

    await registry.post("web-1", ["prometheus:web"])
    assert await targets() == [["web-1:9100"]]
    await registry.post("web-1", ["prometheus:web:port:80"])
    assert await targets() == [["web-1:80"]]
    await registry.post("web-0", ["prometheus:web"])
    assert await targets() == [["web-0:9100"], ["web-1:80"]]
    await registry.post("web-1", ["nothing"])
    assert await targets() == [["web-0:9100"]]
    await registry.ask("DELETE", "/nodes/web-0")
    assert await targets() == []


async def test_a_change_of_kv_alone_changes_the_labels_for_relabelling(
    registry: InProcessRegistry,
) -> None:
    await registry.post("web-1", ["prometheus:web"], {"rack": "r1"})
    await registry.get("/prometheus/web?format=http_sd")

    await registry.post("web-1", ["prometheus:web"], {"rack": "r2"})

    (group,) = await registry.get("/prometheus/web?format=http_sd")
    assert group["labels"]["__meta_rollcall_kv_rack"] == "r2"


@pytest.mark.slow
async def test_a_node_may_offer_thousands_of_services(registry: InProcessRegistry) -> None:
    await registry.post("h", [f"prometheus:s{i}:k:v" for i in range(4000)], {"k": "v" * 10_000})

    (group,) = await registry.get("/prometheus/s3999?format=http_sd")

    assert group["targets"] == ["h:9100"]


@pytest.mark.slow
async def test_what_is_left_out_is_counted(registry: InProcessRegistry) -> None:
    await registry.post("h1", ["prometheus:web:host:a b", "prometheus:web:a-b:c"])
    await registry.post("h2", ["prometheus:web:port:x", "prometheus:web:job:c"])

    async def counted() -> dict[str, float]:
        text = (await registry.ask("GET", "/metrics")).body.decode()
        lines = [line for line in text.splitlines() if "reason=" in line and "target" in line]
        return {line.split('"')[1]: float(line.split()[-1]) for line in lines}

    found = await counted()
    assert (found["host"], found["port"], found["foreign"]) == (1, 1, 0)
    assert (found["sanitized"], found["held_back"]) == (1, 1)
    await registry.ask("DELETE", "/nodes/h1")
    assert (await counted())["host"] == 0


@pytest.mark.slow
async def test_explain_says_what_becomes_of_a_node(registry: InProcessRegistry) -> None:
    await registry.post("h1", ["prometheus:web:host:a b", "prometheus:web:a-b:c", "prometheus:db"])

    reported = await registry.get("/prometheus/web?explain=H1.")

    assert reported["hostname"] == "h1"
    assert reported["listed"] is False
    assert [remark["reason"] for remark in reported["remarks"]] == ["host", "sanitized"]
    assert "'a b'" in reported["remarks"][0]["text"]
    other = await registry.get("/prometheus/none?explain=h1")
    assert other["listed"] is False
    assert "db" in other["reason"]
    listed = await registry.get("/prometheus/db?explain=h1")
    assert listed["listed"] is True
    assert listed["groups"] == [{"targets": ["h1:9100"], "labels": {}}]


async def test_explain_of_an_unknown_node_is_404_and_of_no_hostname_400(
    registry: InProcessRegistry,
) -> None:
    assert (await registry.ask("GET", "/prometheus/web?explain=nobody")).status == 404
    assert (await registry.ask("GET", "/prometheus/web?explain=")).status == 400
    assert (await registry.ask("GET", "/prometheus/web?explain=a%20b")).status == 400


async def test_with_own_targets_a_node_that_moves_gets_its_new_address() -> None:
    async with in_process_registry(target_options=TargetOptions(own_only=True)) as registry:
        await registry.post("h1", ["prometheus:web:host:127.0.0.1"])
        await registry.post("h2", ["prometheus:web:host:127.0.0.2"])

        assert [g["targets"] for g in await registry.get("/prometheus/web?format=http_sd")] == [
            ["127.0.0.1:9100"]
        ]


async def test_who_asks_is_in_the_metrics_with_the_age_of_the_last_time() -> None:
    clock = ManualClocks()
    async with in_process_registry(clock=clock) as registry:
        await registry.get("/prometheus/web", headers={"User-Agent": "Prometheus/2.42.0"})
        clock.pass_seconds(7)

        text = (await registry.ask("GET", "/metrics")).body.decode()

    assert (
        "rollcall_registry_consumer_last_fetch_age_seconds"
        '{key="ops",user_agent="Prometheus/2.42.0"} 7.0' in text
    )


WORDS = st.sampled_from(
    ["host", "port", "job", "__address__", "a-b", "a.b", "1", "__scheme__", "é", "80", "h:1", "-"]
)
FREE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
LABELS = st.lists(
    st.one_of(
        FREE,
        st.just("prometheus:web"),
        st.builds("prometheus:web:{}:{}".format, st.one_of(WORDS, FREE), st.one_of(WORDS, FREE)),
        st.builds(
            "prometheus:web@{}:{}:{}".format, FREE, st.one_of(WORDS, FREE), st.one_of(WORDS, FREE)
        ),
    ),
    max_size=8,
)
KV = st.dictionaries(
    FREE, st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=4
)


@pytest.mark.slow
@settings(max_examples=share_of(60), suppress_health_check=list(HealthCheck))
@given(nodes=st.lists(st.tuples(LABELS, KV), min_size=1, max_size=4))
async def test_whatever_nodes_send_a_scraper_takes_the_answer(
    nodes: Sequence[tuple[list[str], dict[str, str]]], registry: InProcessRegistry
) -> None:
    await registry.post("good", ["prometheus:web:port:1234"])
    for number, (labels, kv) in enumerate(nodes):
        assert (await registry.post(f"n{number}", labels, kv)).status == 200

    answer = await registry.ask("GET", "/prometheus/web", headers=SCRAPER)

    for generation in (2, 3):
        found = http_sd.parse(answer.body, generation=generation)
        assert all(http_sd.usable(target) for target, _ in found)
        assert "good:1234" in [target for target, _ in found]
        hijackers = [labels for _, labels in found if {"job", "instance"} & set(labels)]
        assert hijackers == []
