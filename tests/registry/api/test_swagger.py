"""The Swagger document of the registry: valid, complete, and true to what is served."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clients.message import Heartbeat, Node, TargetGroup
from config.registry import NodesSettings
from httpd.pages import Pages
from registry.api.status import Status
from registry.metrics import ALTERED, LEFT_OUT
from registry.prometheus.answers import ServiceSummary
from registry.prometheus.explain import Explanation
from tests.support.httpd.swagger import (
    check_document,
    check_value,
    differences,
    documented_operations,
    served_operations,
)
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

OF_EVERY_ANSWER = {"content-length", "content-type", "date", "rollcall", "server"}
OF_PAGES = {"link", "rollcall-total"}
pytestmark = pytest.mark.slow


async def document(registry: InProcessRegistry) -> Any:
    return await registry.get("/swagger.json")


async def test_it_is_valid_as_it_is_served(registry: InProcessRegistry) -> None:
    check_document(await document(registry))


async def test_it_has_the_operations_of_the_registry_and_no_others(
    registry: InProcessRegistry,
) -> None:
    pages = {("GET", path) for path in Pages("registry").paths}

    assert (
        documented_operations(await document(registry)) == served_operations(registry.app) - pages
    )


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("Explanation", Explanation),
        ("Heartbeat", Heartbeat),
        ("Node", Node),
        ("Service", ServiceSummary),
        ("Status", Status),
        ("TargetGroup", TargetGroup),
    ],
)
async def test_what_is_sent_and_read_is_documented_as_it_is(
    registry: InProcessRegistry, definition: str, kind: Any
) -> None:
    found = differences(await document(registry), definition, kind)

    # It is ignored, so it may be anything.
    assert [each for each in found if not each.startswith("Heartbeat.last_update")] == []


async def test_other_forms_of_answers_are_as_their_definitions_say(
    registry: InProcessRegistry,
) -> None:
    reported = await document(registry)
    await registry.post("web-1", ["prometheus:web:a-b:c", "prometheus:web:host:x y", "k:v"])
    await registry.post("web-2", ["prometheus:web"], {"rack": "r1"})

    (flat,) = await registry.get("/prometheus/web?format=http_sd")
    ((nested,),) = await registry.get("/prometheus/web?format=nested")
    explained = await registry.get("/prometheus/web?explain=web-1")

    check_value(reported, "TargetGroup", flat)
    check_value(reported, "PrometheusDiscovery", nested)
    check_value(reported, "Explanation", explained)
    for path in ("/nodes", "/nodes/web-2"):
        check_value(reported, "AddressedNode", (await registry.get(f"{path}?address=true"))[-1])
    check_value(reported, "NodeExplanation", await registry.get("/nodes/web-1/explain"))
    assert {remark["reason"] for remark in explained["remarks"]} == {"host", "sanitized"}


async def test_all_reasons_of_remarks_are_in_the_document(registry: InProcessRegistry) -> None:
    reported = await document(registry)
    remark = reported["definitions"]["Explanation"]["properties"]["remarks"]["items"]
    answer = reported["paths"]["/prometheus/{service}"]["get"]["responses"]["200"]

    assert sorted(remark["properties"]["reason"]["enum"]) == sorted(
        [*LEFT_OUT, *ALTERED, "misspelt"]
    )
    for word in ("TargetGroup", "Explanation", "explain", *LEFT_OUT, *ALTERED):
        assert f"`{word}`" in answer["description"]


async def test_the_headers_of_answers_are_in_the_document(tmp_path: Path) -> None:
    store = MemoryStore(continues=False)
    expected = tmp_path / "expected"
    await asyncio.to_thread(expected.write_text, "web-1\n")
    limits = NodesSettings(warm_up_seconds=90, expected=str(expected))
    async with in_process_registry(store=store, limits=limits) as registry:
        await registry.post("web-1", ["prometheus:web"])
        store.age = 12.3
        paths = (await document(registry))["paths"]
        withheld = ("/prometheus/{service}", "/roll-call")  # at first

        async def are_documented(path: str) -> set[str]:
            answer = await registry.ask("GET", path.format(hostname="web-1", service="web"))
            assert answer.status == 200
            sent = {name.lower() for name in answer.headers} - OF_EVERY_ANSWER
            documented = paths[path]["get"]["responses"]["200"].get("headers", {})
            assert sent == {name.lower() for name in documented} - OF_PAGES, path
            return sent

        found = [await are_documented(path) for path in paths if path not in withheld]
        registry.clock.pass_seconds(90)
        await registry.components.expected_file.read()
        found += [await are_documented(path) for path in withheld]

    assert {"rollcall-warming", "rollcall-store-age"} < set().union(*found)
