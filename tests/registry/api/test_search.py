"""GET /nodes?search= and ?stale=: what people look for."""

from urllib.parse import quote

import pytest

from tests.support.registry.in_process import InProcessRegistry, in_process_registry

FLEET = {
    "web-1": (["service:Web", "free Text"], {"rack": "r1", "agent.url": "http://Web-1:7656"}),
    "db-1": (["service:db", 'say "hi"'], {"Rack": "R12", "note": "line\nnext"}),
    "empty": ([], {}),
    "straße": (["ort:STRASSE", "ÄPFEL"], {"back\\slash": 'a "quoted" one'}),
}


@pytest.fixture
async def fleet(registry: InProcessRegistry) -> InProcessRegistry:
    for hostname, (labels, kv) in FLEET.items():
        await registry.post("strasse" if hostname == "straße" else hostname, labels, kv)
    return registry


async def found(registry: InProcessRegistry, text: str, more: str = "") -> list[str]:
    nodes = await registry.get(f"/nodes?search={quote(text, safe='')}{more}")
    return [node["hostname"] for node in nodes]


async def test_hosts_are_listed_that_tell_of_apps_that_are_down(
    registry: InProcessRegistry,
) -> None:
    for name, reported in {
        "dead": ("3", "2", "0"),
        "ill": ("3", "3", "1"),
        "well": ("3", "3", "0"),
        "odd": ("many", "2", "-1"),
        "some-stopped": ("3", "1", "0", "1"),
        "stopped": ("3", "1", "0", "2"),
        "stopped-oddly": ("3", "2", "0", "-1"),
        "too-many-stopped": ("3", "3", "0", "4"),
    }.items():
        keys = ("apps.total", "apps.running", "apps.unhealthy", "apps.stopped")
        kv = dict(zip(keys, reported, strict=False))
        await registry.post(name, ["a"], kv)
    await registry.post("bare", ['"apps.unhealthy":"1"'], {"apps.total": "1"})

    async def listed(query: str) -> list[str]:
        return [node["hostname"] for node in await registry.get(f"/nodes?{query}")]

    down = ["dead", "ill", "some-stopped", "stopped-oddly"]
    assert await listed("apps_down=true") == down
    assert await listed("apps_down=false") == ["bare", "odd", "stopped", "too-many-stopped", "well"]
    assert await listed("apps_down=true&label=a&limit=1") == ["dead"]
    assert (await registry.ask("GET", "/nodes?apps_down=1")).status == 400
    assert (await registry.get("/status"))["nodes"]["apps_down"] == len(down)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ["db-1", "empty", "strasse", "web-1"]),
        ("EMPT", ["empty"]),
        ("service:", ["db-1", "web-1"]),
        ("web", ["web-1"]),
        ("ICE:w", ["web-1"]),
        ("free text", ["web-1"]),
        ("rack:R1", ["db-1", "web-1"]),
        ("rack:r12", ["db-1"]),
        ("agent.url:http://web-1:7656", ["web-1"]),
        ("url:http", ["web-1"]),
        ("rack", ["db-1", "web-1"]),
        ('"hi"', ["db-1"]),
        ('say "', ["db-1"]),
        ("line\nnext", ["db-1"]),
        ("nnext", []),
        ("n", ["db-1", "strasse", "web-1"]),
        ("äpfel", ["strasse"]),
        ("straße", ["strasse"]),
        ("back\\slash:A", ["strasse"]),
        ('slash:a "QUOTED" one', ["strasse"]),
        ("none", []),
        *[(text, []) for text in ("labels", "last_update", "hostname", '","', '":"', "kv", "],")],
        *[(text, []) for text in ("db-1service", "one\n", 'hi"\n', "\\n", "{", "}", "\n\n")],
        ("x" * 256, []),
    ],
)
async def test_a_text_is_found_in_hostnames_labels_and_pairs(
    fleet: InProcessRegistry, text: str, hosts: list[str]
) -> None:
    assert await found(fleet, text) == hosts


async def test_what_changes_is_found_as_it_is_now(fleet: InProcessRegistry) -> None:
    assert await found(fleet, "service:web") == ["web-1"]
    await fleet.post("web-1", ["service:cache"])
    assert await found(fleet, "service:web") == []
    assert await found(fleet, "service:cache") == ["web-1"]
    await fleet.post("another", ["service:cache"])
    assert await found(fleet, "service:cache") == ["another", "web-1"]
    await fleet.ask("DELETE", "/nodes/web-1")
    assert await found(fleet, "service:cache") == ["another"]
    fleet.clock.pass_seconds(86_400)
    assert await found(fleet, "service:cache") == []


async def test_a_search_goes_with_other_filters_and_pages(fleet: InProcessRegistry) -> None:
    assert await found(fleet, "rack", "&label=service:db") == ["db-1"]
    answer = await fleet.ask("GET", "/nodes?search=1&limit=1")
    assert [node["hostname"] for node in answer.json()] == ["db-1"]
    assert answer.headers["Link"] == '<nodes?search=1&limit=1&after=db-1>; rel="next"'
    assert await found(fleet, "1", "&limit=1&after=db-1") == ["web-1"]


async def test_stale_nodes_and_fresh_ones(fleet: InProcessRegistry) -> None:
    fleet.clock.pass_seconds(60)
    await fleet.post("web-1", ["service:web"])
    fleet.clock.pass_seconds(60)

    async def listed(query: str) -> list[str]:
        return [node["hostname"] for node in await fleet.get(f"/nodes?{query}")]

    assert await listed("stale=true") == ["db-1", "empty", "strasse"]
    assert await listed("stale=false") == ["web-1"]
    assert await listed("stale=true&search=service") == ["db-1"]
    assert await listed("stale=true&limit=1&after=db-1") == ["empty"]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("search=" + "x" * 257, "256"),
        ("search=a&search=b", "search"),
        ("stale=yes", "stale"),
        ("stale=", "stale"),
        ("stale=true&stale=true", "stale"),
        ("watch=true&search=a", "search"),
        ("watch=true&stale=true", "stale"),
        ("&".join(f"label={n}" for n in range(16)) + "&stale=true", "16"),
    ],
)
async def test_what_is_wrong_is_400(registry: InProcessRegistry, query: str, named: str) -> None:
    answer = await registry.ask("GET", f"/nodes?{query}")
    assert answer.status == 400
    assert named in answer.json()["message"]


@pytest.mark.slow
async def test_large_nodes_are_searched_to_their_ends() -> None:
    async with in_process_registry(level="error") as registry:
        kv = {f"k{number}": "v" * 16_000 for number in range(60)}
        await registry.post("large-1", [f"l:{n}" for n in range(100)], {**kv, "last": "Needle"})
        await registry.post("large-2", ["first:needle"], kv)
        await registry.post("large-3", [], {**kv, "z": 'with "quotes"\nneedle'})
        await registry.post("small")
        assert await found(registry, "needle") == ["large-1", "large-2", "large-3"]
        assert await found(registry, "nneedle") == []
        assert await found(registry, "last:needle") == ["large-1"]
        assert await found(registry, "vvv") == ["large-1", "large-2", "large-3"]
