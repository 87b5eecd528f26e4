"""What the Swagger document says of the answers that its one schema for 200 cannot hold."""

from typing import Any

import pytest

from config.registry import NodesSettings
from registry.metrics import ALTERED, LEFT_OUT
from tests.support.registry.in_process import InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore


async def document(registry: InProcessRegistry) -> Any:
    return await registry.get("/swagger.json")


def agrees(value: Any, definition: Any, definitions: Any) -> bool:
    """Return whether a value is as a definition says; it knows the words that these use."""
    if "$ref" in definition:
        definition = definitions[definition["$ref"].rpartition("/")[2]]
    match definition["type"]:
        case "object" if "properties" in definition:
            properties = definition["properties"]
            return value.keys() == properties.keys() == set(definition["required"]) and all(
                agrees(value[name], properties[name], definitions) for name in properties
            )
        case "object":
            return all(
                agrees(item, definition["additionalProperties"], definitions)
                for item in value.values()
            )
        case "array":
            return all(agrees(item, definition["items"], definitions) for item in value)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return isinstance(value, str) and value in definition.get("enum", [value])


@pytest.mark.slow
async def test_the_flat_form_and_the_explanation_are_as_their_definitions_say(
    registry: InProcessRegistry,
) -> None:
    definitions = (await document(registry))["definitions"]
    await registry.post("web-1", ["prometheus:web:a-b:c", "prometheus:web:host:x y", "k:v"])
    await registry.post("web-2", ["prometheus:web"], {"rack": "r1"})

    flat = await registry.get("/prometheus/web?format=http_sd")
    nested = await registry.get("/prometheus/web?format=nested")
    told = await registry.get("/prometheus/web?explain=web-1")

    assert [agrees(group, definitions["TargetGroup"], definitions) for group in flat] == [True]
    assert not agrees(nested[0][0], definitions["TargetGroup"], definitions)
    assert agrees(told, definitions["Explanation"], definitions)
    assert {remark["reason"] for remark in told["remarks"]} == {"host", "mended"}


@pytest.mark.slow
async def test_all_reasons_of_remarks_are_in_the_document(registry: InProcessRegistry) -> None:
    told = await document(registry)
    remark = told["definitions"]["Explanation"]["properties"]["remarks"]["items"]
    answer = told["paths"]["/prometheus/{service}"]["get"]["responses"]["200"]

    assert sorted(remark["properties"]["reason"]["enum"]) == sorted([*LEFT_OUT, *ALTERED])
    for word in ("TargetGroup", "Explanation", "explain", *LEFT_OUT, *ALTERED):
        assert f"`{word}`" in answer["description"]


@pytest.mark.slow
async def test_the_headers_of_a_store_out_of_reach_and_of_a_warm_up_are_in_the_document() -> None:
    store = MemoryStore(continues=False)
    limits = NodesSettings(warm_up_seconds=90)
    async with in_process_registry(store=store, limits=limits) as registry:
        await registry.post("web-1", ["prometheus:web"])
        store.age = 12.3
        documented: dict[str, set[str]] = {}
        sent: dict[str, set[str]] = {}
        for path, operations in (await document(registry))["paths"].items():
            if "get" in operations:
                answer = operations["get"]["responses"]["200"]
                documented[path] = set(answer.get("headers", {}))
                asked = path.format(hostname="web-1", service="web")
                headers = (await registry.ask("GET", asked)).headers
                sent[path] = {name for name in headers if name.startswith("Rollcall-")}

    assert sent == documented
    assert len(set().union(*sent.values())) == 2
