"""GET /nodes in pages: nothing that is there throughout is missed or given twice."""

import random
from typing import Any
from urllib.parse import urljoin

import pytest

from registry.nodes.listing import MAX_EXAMINED
from registry.store.protocol import Row
from tests.support.registry.in_process import WALL, InProcessRegistry, in_process_registry
from tests.support.registry.stores.memory_store import MemoryStore

HOSTS = [f"web-{number:03}" for number in range(300)]
LINK = '<{}>; rel="next"'


async def page(registry: InProcessRegistry, path: str) -> tuple[list[str], str | None]:
    """Return the hostnames of a page, and the path of the next one."""
    answer = await registry.ask("GET", path)
    assert answer.status == 200, answer.body
    link = answer.headers.get("Link")
    following = None
    if link is not None:
        following = link.removeprefix("<").removesuffix('>; rel="next"')
        assert link == LINK.format(following)
        following = str(urljoin("http://registry/", following)).removeprefix("http://registry")
    nodes: list[dict[str, Any]] = answer.json()
    return [node["hostname"] for node in nodes], following


@pytest.mark.slow
async def test_the_pages_together_are_the_list(registry: InProcessRegistry) -> None:
    for host in HOSTS[:25]:
        await registry.post(host, ["a b&c" if host < "web-020" else "other"])

    for query, expected in (("", HOSTS[:25]), ("&label=a%20b%26c", HOSTS[:20])):
        for limit in (1, 7, 20, 25, 1000):
            path: str | None = f"/nodes?limit={limit}{query}"
            found: list[str] = []
            while path is not None:
                hostnames, path = await page(registry, path)
                assert 1 <= len(hostnames) <= limit
                found += hostnames
            assert found == expected


@pytest.mark.slow
async def test_what_is_there_throughout_is_on_exactly_one_page(
    registry: InProcessRegistry,
) -> None:
    chance = random.Random(11)
    for host in HOSTS[::2]:
        await registry.post(host)
    throughout = set(HOSTS[::4])
    others = [host for host in HOSTS if host not in throughout]
    found: list[str] = []
    path: str | None = "/nodes?limit=9"
    while path is not None:
        hostnames, path = await page(registry, path)
        found += hostnames
        for host in chance.sample(others, 30):
            if chance.random() < 0.5:
                await registry.ask("DELETE", f"/nodes/{host}")
            else:
                await registry.post(host, [f"n:{chance.random()}"])

    assert found == sorted(set(found))
    assert throughout <= set(found)


async def test_a_page_begins_after_any_hostname_known_or_not(registry: InProcessRegistry) -> None:
    for host in ("a", "c"):
        await registry.post(host)

    assert await page(registry, "/nodes?after=a") == (["c"], None)
    assert await page(registry, "/nodes?after=B.") == (["c"], None)
    assert await page(registry, "/nodes?after=c") == ([], None)
    assert await page(registry, "/nodes?after=0") == (["a", "c"], None)


async def test_a_page_has_an_etag_of_its_own(registry: InProcessRegistry) -> None:
    await registry.post("a")
    tag = (await registry.ask("GET", "/nodes?limit=1")).headers["ETag"]
    await registry.post("b")

    answer = await registry.ask("GET", "/nodes?limit=1", headers={"If-None-Match": tag})
    assert answer.status == 304
    answer = await registry.ask("GET", "/nodes", headers={"If-None-Match": tag})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("after=a%20b", "hostname"),
        ("after=a&after=b", "after"),
        ("&".join(f"label={n}" for n in range(17)), "16"),
        ("&".join(f"prefix={n}" for n in range(15)) + "&kv=a:b&max_age=3", "16"),
    ],
)
async def test_what_is_no_page_or_too_much_is_400(
    registry: InProcessRegistry, query: str, named: str
) -> None:
    answer = await registry.ask("GET", f"/nodes?{query}")

    assert answer.status == 400
    assert named in answer.json()["message"]


async def total(registry: InProcessRegistry, query: str) -> str | None:
    """Return the total that a page shows."""
    answer = await registry.ask("GET", f"/nodes?{query}&limit=2&total=true")
    assert answer.status == 200, answer.body
    return answer.headers.get("Rollcall-Total")


async def test_a_page_shows_how_many_nodes_all_pages_have_to_those_who_ask(
    registry: InProcessRegistry,
) -> None:
    for number in range(7):
        await registry.post(f"web-{number}", [f"zone:{'a' if number < 5 else 'b'}"], {"n": "1"})

    for query, expected in (
        ("", "7"),
        ("label=zone:a", "5"),
        ("search=ZONE:", "7"),
        ("search=ZONE:&label=zone:a&after=web-2", "5"),
        ("stale=true", "0"),
        ("after=web-6", "7"),
    ):
        assert await total(registry, query) == expected
    answer = await registry.ask("GET", "/nodes?limit=2&total=true")
    tag = {"If-None-Match": answer.headers["ETag"]}
    await registry.post("web-7")
    answer = await registry.ask("GET", "/nodes?limit=2&total=true", headers=tag)
    assert (answer.status, answer.headers["Rollcall-Total"]) == (304, "8")
    assert "Rollcall-Total" not in (await registry.ask("GET", "/nodes?limit=2")).headers
    for query in ("total=1", "watch=true&total=true"):
        assert (await registry.ask("GET", f"/nodes?{query}")).status == 400


async def test_nodes_that_take_long_to_count_are_not_counted() -> None:
    odd, plain = (b'{"labels":["zone:%b"],"kv":{}}' % name for name in (b"odd", b"even"))
    rows = [
        Row(f"web-{number:05}", plain if number % 20 else odd, WALL, "192.0.2.1")
        for number in range(MAX_EXAMINED + 100)
    ]
    async with in_process_registry(store=MemoryStore(rows)) as registry:
        assert await total(registry, "search=web") is None  # too many
        assert await total(registry, "label=zone:even") is None
        assert await total(registry, "search=odd") is None  # too many to look at one by one
        assert await total(registry, "search=no-such-text") == "0"
        assert await total(registry, "label=zone:odd") == str(len(rows) // 20)


async def test_a_filter_that_is_repeated_counts_once(registry: InProcessRegistry) -> None:
    await registry.post("a", ["x"])

    hostnames, _ = await page(registry, "/nodes?" + "&".join(["label=x"] * 40))
    assert hostnames == ["a"]
