"""GET /nodes and GET /nodes/{hostname}."""

import gzip
from collections.abc import Callable

import msgspec
import pytest
import zstandard

from clients.message import Node
from tests.support.registry.in_process import InProcessRegistry

FLEET = {
    "web-2": (["service:web", "env:prod"], {"rack": "r1"}),
    "db-1": (["service:db", "env:prod"], {"rack": "r2", "note": 'say "hi": it, works'}),
    "web-1": (["service:web", "env:test", "free text"], {"rack": "r1", "slot": "7"}),
}


@pytest.fixture
async def fleet(registry: InProcessRegistry) -> InProcessRegistry:
    for hostname, (labels, kv) in FLEET.items():
        await registry.post(hostname, labels, kv)
        registry.clock.pass_seconds(10)
    return registry


async def names(registry: InProcessRegistry, query: str) -> list[str]:
    return [node["hostname"] for node in await registry.get(f"/nodes{query}")]


async def test_without_nodes_the_list_is_empty(registry: InProcessRegistry) -> None:
    answer = await registry.ask("GET", "/nodes")

    assert answer.body == b"[]"
    assert answer.headers["Content-Type"] == "application/json"


async def test_all_nodes_are_listed_by_hostname_with_exactly_the_documented_fields(
    fleet: InProcessRegistry,
) -> None:
    body = (await fleet.ask("GET", "/nodes")).body

    nodes = msgspec.json.decode(body, type=list[Node])
    assert [node.hostname for node in nodes] == ["db-1", "web-1", "web-2"]
    assert set(msgspec.json.decode(body)[0]) == {"hostname", "labels", "kv", "last_update"}
    assert {node.hostname: (node.labels, node.kv) for node in nodes} == FLEET


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?label=service:web", ["web-1", "web-2"]),
        ("?label=service:web&label=env:prod", ["web-2"]),
        ("?label=service", []),
        ("?label=free%20text", ["web-1"]),
        ("?prefix=service:", ["db-1", "web-1", "web-2"]),
        ("?prefix=service:d", ["db-1"]),
        ("?prefix=service:w&prefix=env:t", ["web-1"]),
        ("?prefix=ervice", []),
        ("?prefix=", ["db-1", "web-1", "web-2"]),
        ("?kv=rack:r1", ["web-1", "web-2"]),
        ("?kv=rack:r1&kv=slot:7", ["web-1"]),
        ("?kv=rack:r", []),
        ("?kv=note:say%20%22hi%22:%20it,%20works", ["db-1"]),
        ("?kv=rack:", []),
        ("?label=env:prod&kv=rack:r2&prefix=serv&max_age=100", ["db-1"]),
        ("?max_age=15", ["web-1"]),
        ("?max_age=1.5e%2B1", ["web-1"]),
        ("?max_age=20.5", ["db-1", "web-1"]),
        ("?max_age=0", []),
        ("?label=hostname", []),
        ("?label=r1", []),
        ("?" + "&".join(["label=" + "x" * 900] * 16), []),
    ],
)
async def test_a_node_is_listed_if_all_filters_hold(
    fleet: InProcessRegistry, query: str, found: list[str]
) -> None:
    assert await names(fleet, query) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?labels=x", "labels"),
        ("?label=x&Prefix=y", "Prefix"),
        ("?max_age=soon", "max_age"),
        ("?max_age=-1", "max_age"),
        ("?max_age=1e", "max_age"),
        ("?max_age=nan", "max_age"),
        ("?max_age=1&max_age=2", "max_age"),
        ("?kv=rack", "KEY:VALUE"),
        ("?stale=yes", "stale"),
        ("?stale=true&stale=false", "stale"),
    ],
)
async def test_a_query_that_is_not_understood_is_400_and_names_it(
    fleet: InProcessRegistry, query: str, named: str
) -> None:
    answer = await fleet.ask("GET", f"/nodes{query}")

    assert answer.status == 400
    assert named in answer.json()["message"]


async def test_an_unknown_node_is_404(registry: InProcessRegistry) -> None:
    for method in ("GET", "DELETE"):
        answer = await registry.ask(method, "/nodes/nobody")

        assert answer.status == 404
        assert answer.json() == {"message": "no node nobody is known"}


async def test_a_deleted_node_is_gone_for_good(fleet: InProcessRegistry) -> None:
    answer = await fleet.ask("DELETE", "/nodes/web-1")

    assert answer.status == 200
    assert answer.json() == {"message": "web-1 is forgotten"}
    assert await names(fleet, "") == ["db-1", "web-2"]
    await fleet.components.nodes.writes.flush()
    assert "web-1" not in fleet.store.rows
    assert (await fleet.ask("DELETE", "/nodes/web-1")).status == 404


@pytest.mark.slow
async def test_a_node_that_another_identity_holds_by_now_is_not_deleted(
    fleet: InProcessRegistry,
) -> None:
    await fleet.post("web-1", [], {"agent.id": "new"})

    rejected = await fleet.ask("DELETE", "/nodes/web-1?agent_id=old")

    assert rejected.status == 409
    assert "web-1 is now the host with agent.id 'new'" in rejected.json()["message"]
    assert "web-1" in await names(fleet, "")
    assert (await fleet.ask("DELETE", "/nodes/web-1?agent_id=new")).status == 200
    assert (await fleet.ask("DELETE", "/nodes/db-1?agent_id=any")).status == 200  # it sent none
    assert await names(fleet, "") == ["web-2"]


async def test_a_deleted_node_may_come_back(fleet: InProcessRegistry) -> None:
    await fleet.ask("DELETE", "/nodes/web-1")

    assert (await fleet.post("web-1", ["again"])).status == 200
    assert (await fleet.get("/nodes/web-1"))[0]["labels"] == ["again"]


@pytest.mark.slow
async def test_the_etag_stands_for_the_bytes(fleet: InProcessRegistry) -> None:
    first = await fleet.ask("GET", "/nodes")
    same = await fleet.ask("GET", "/nodes")
    await fleet.post("web-1", ["changed"])
    other = await fleet.ask("GET", "/nodes")

    assert first.headers["ETag"] == same.headers["ETag"]
    assert first.headers["ETag"].startswith('"')
    assert other.headers["ETag"] != first.headers["ETag"]


@pytest.mark.slow
async def test_a_heartbeat_alone_changes_the_etag_since_it_changes_last_update(
    fleet: InProcessRegistry,
) -> None:
    first = await fleet.ask("GET", "/nodes")
    fleet.clock.pass_seconds(1)
    await fleet.post("web-1", *FLEET["web-1"])

    assert (await fleet.ask("GET", "/nodes")).headers["ETag"] != first.headers["ETag"]


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', '"other",W/{}', "*"])
async def test_what_the_client_has_already_is_304_without_a_body(
    fleet: InProcessRegistry, form: str
) -> None:
    etag = (await fleet.ask("GET", "/nodes")).headers["ETag"]

    answer = await fleet.ask("GET", "/nodes", headers={"If-None-Match": form.format(etag)})

    assert (answer.status, answer.body) == (304, b"")
    assert answer.headers["ETag"] == etag
    assert answer.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("form", ['"other"', "", '"', "{}x", "garbage"])
async def test_what_the_client_has_not_is_sent(fleet: InProcessRegistry, form: str) -> None:
    etag = (await fleet.ask("GET", "/nodes")).headers["ETag"].strip('"')

    answer = await fleet.ask("GET", "/nodes", headers={"If-None-Match": form.format(etag)})

    assert answer.status == 200


UNPACK: dict[str | None, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": zstandard.ZstdDecompressor().decompress,
    None: bytes,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("zstd", "zstd"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("GZIP", "gzip"),
        ("zstd;q=0.1, gzip;q=0.9", "gzip"),
        ("gzip;q=0, zstd;q=0.0", None),
        ("gzip;q=x", None),
        ("identity, gzip;q=0.1", None),
        ("identity;q=0.5, gzip;q=0.5", "gzip"),
        ("br", None),
        ("identity", None),
        ("*", None),
        ("", None),
        ("identity;q=0, gzip", "gzip"),
        ("*;q=0, zstd;q=0.1", "zstd"),
        ("identity;q=0, *", "zstd"),
        ("identity;q=0, zstd;q=0, *;q=0.5", "gzip"),
        ("identity;q=x", None),
        ("*;q=0, identity", None),
    ],
)
async def test_an_answer_is_compressed_as_the_client_asks(
    fleet: InProcessRegistry, accepted: str, coding: str | None
) -> None:
    plain = await fleet.ask("GET", "/nodes")

    answer = await fleet.ask("GET", "/nodes", headers={"Accept-Encoding": accepted})

    assert answer.headers.get("Content-Encoding") == coding
    assert UNPACK[coding](answer.body) == plain.body
    assert (answer.headers["ETag"] == plain.headers["ETag"]) == (coding is None)


@pytest.mark.parametrize("path", ["/nodes", "/services", "/prometheus/web"])
@pytest.mark.parametrize(
    "excluding", ["identity;q=0", "*;q=0", "gzip;q=0, zstd;q=0, identity;q=0, *", "br, *;q=0.000"]
)
async def test_a_client_that_excludes_every_coding_gets_406_with_those_there_are(
    fleet: InProcessRegistry, path: str, excluding: str
) -> None:
    answer = await fleet.ask("GET", path, headers={"Accept-Encoding": excluding})

    assert answer.status == 406
    assert "identity, zstd, gzip" in answer.json()["message"]


async def test_a_head_has_the_headers_of_the_get_and_no_body(fleet: InProcessRegistry) -> None:
    get = await fleet.ask("GET", "/nodes")

    head = await fleet.ask("HEAD", "/nodes")

    assert (head.status, head.body) == (200, b"")
    for name in ("ETag", "Content-Type", "Content-Length", "Vary"):
        assert head.headers[name] == get.headers[name]


@pytest.mark.slow
async def test_a_list_of_many_mebibytes_is_whole_in_every_coding(
    registry: InProcessRegistry,
) -> None:
    value = "v" * 16_000
    for number in range(100):
        await registry.post(f"n{number:03}", [], {"a": value, "b": value})

    plain = await registry.ask("GET", "/nodes")
    packed = await registry.ask("GET", "/nodes", headers={"Accept-Encoding": "gzip"})

    assert len(plain.json()) == 100
    assert gzip.decompress(packed.body) == plain.body
