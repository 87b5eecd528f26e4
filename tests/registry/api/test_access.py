"""Who may do what."""

import base64
import hashlib
import hmac

import pytest

from config import VERSION
from httpd.auth import Caller
from registry.api.access import NodeKeys
from tests.support.httpd.swagger import documented_operations
from tests.support.registry.in_process import (
    NODE_SECRET,
    OPS,
    READER,
    SCRAPER,
    WEB_HOSTS,
    WRITER,
    InProcessRegistry,
    in_process_registry,
)


def node_key(hostname: str) -> str:
    """Make a host's key as the specification says, without our code."""
    mac = hmac.new(NODE_SECRET.encode(), b"rollcall node " + hostname.encode(), hashlib.sha256)
    return f"rk1.{hostname}." + base64.urlsafe_b64encode(mac.digest()).decode().rstrip("=")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "Token {}", "TOKEN {}", "{}"])
async def test_each_form_of_the_header_works(registry: InProcessRegistry, form: str) -> None:
    for key in (OPS, READER):
        headers = {"Authorization": form.format(key)}
        assert (await registry.ask("GET", "/nodes", key=None, headers=headers)).status == 200
    headers = {"Authorization": form.format(node_key("h1"))}
    body: dict[str, object] = {"labels": [], "kv": {}}
    answer = await registry.ask("POST", "/nodes/h1", key=None, headers=headers, json=body)
    assert answer.status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic b3BzOng=", "Bearer wrong", f"Bearer x{OPS}"]
)
async def test_without_a_good_key_all_paths_and_methods_answer_alike(
    registry: InProcessRegistry, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answers = [
        await registry.ask(method, path, key=None, headers=headers, data=b"x")
        for method in ("GET", "POST", "DELETE", "PUT", "PATCH")
        for path in ("/nodes", "/nodes/a", "/prometheus/x", "/metrics", "/swagger.json", "/none")
    ]

    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1
    challenges = {answer.headers["WWW-Authenticate"] for answer in answers}
    assert challenges == {'Bearer realm="rollcall"'}


async def test_a_key_is_reported_what_it_allows() -> None:
    async with in_process_registry(load=False) as registry:
        ops, reader = [await registry.get("/access", key=key) for key in (OPS, READER)]
        assert ops == {
            "name": "ops",
            "allow": ["read", "write"],
            "apps": None,
            "daemon": "registry",
            "version": VERSION,
            "hostname": None,
        }
        assert (reader["name"], reader["allow"]) == ("reader", ["read"])
        assert (await registry.ask("GET", "/access?x=1")).status == 400
        assert (await registry.ask("GET", "/access", key=None)).status == 401
        assert (await registry.ask("GET", "/access", key=WEB_HOSTS)).status == 403


async def test_the_health_needs_no_key(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/healthz", key=None)).json() == {"message": "ok"}


# What each kind of key may do: of the pattern web-*, of the node key of db-1, and without a key.
# A hostname in a path is that of the node which both may report, or of another one.
SCRAPE, READ, WRITE = "scrape", "read", "write"
PATTERN, NODE, NOBODY = "register", "node key", "no key"
KEY_OF = {
    SCRAPE: SCRAPER, READ: READER, WRITE: WRITER, PATTERN: WEB_HOSTS, NODE: node_key("db-1"),
    NOBODY: None,
}  # fmt: skip
WHO_MAY: dict[tuple[str, str], set[str]] = {
    ("GET", "/healthz"): {SCRAPE, READ, WRITE, PATTERN, NODE, NOBODY},
    ("GET", "/metrics"): {SCRAPE, READ},
    ("GET", "/prometheus/{}"): {SCRAPE, READ},
    ("GET", "/swagger.json"): {READ},
    ("GET", "/access"): {READ},
    ("GET", "/status"): {READ},
    ("GET", "/services"): {READ},
    ("GET", "/roll-call"): {READ},
    ("GET", "/nodes"): {READ},
    ("GET", "/nodes/{}"): {READ},
    ("GET", "/nodes/{}/explain"): {READ},
    ("POST", "/nodes/{}"): {WRITE, PATTERN, NODE},
    ("DELETE", "/nodes/{}"): {WRITE, PATTERN, NODE},
}
OWN_NODES = {PATTERN: "web-1", NODE: "db-1"}


@pytest.mark.parametrize("kind", KEY_OF)
async def test_each_operation_is_for_the_keys_that_the_table_names(
    registry: InProcessRegistry, kind: str
) -> None:
    document = await registry.get("/swagger.json")
    assert documented_operations(document) == WHO_MAY.keys()
    for (method, path), who in WHO_MAY.items():
        named = path.format(OWN_NODES.get(kind, "web-1"))

        answer = await registry.ask(method, named, key=KEY_OF[kind], data=b"x")

        rejected = 401 if kind == NOBODY else 403
        assert (answer.status != rejected) == (kind in who), (method, path)


MAY_NOT: dict[str, list[tuple[str, str]]] = {
    SCRAPER: [("GET", "/prometheus/x?explain=db-1"), ("GET", "/prometheus/x?format=nested&explain"),
              ("HEAD", "/nodes"), ("GET", "/nodes?watch=true")],
    READER: [("POST", "/nodes/db-1"), ("DELETE", "/nodes/db-1")],
    WEB_HOSTS: [("GET", "/nodes"), ("GET", "/nodes/web-1"), ("POST", "/nodes/db-1"),
                ("POST", "/nodes/xweb-1"), ("DELETE", "/nodes/db-1"),
                ("POST", "/nodes/db-1%00web-")],
    node_key("db-1"): [("POST", "/nodes/db-2"), ("POST", "/nodes/db-1.x"),
                       ("DELETE", "/nodes/web-1"), ("GET", "/nodes/db-1"),
                       ("POST", "/nodes/db-1%00"), ("POST", "/nodes/db%2D1%2Fx")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "path"), [(WEB_HOSTS, "/nodes/WEB-1."), (node_key("db-1"), "/nodes/DB-1.")]
)
async def test_a_key_of_hosts_takes_each_form_of_their_names(
    registry: InProcessRegistry, key: str, path: str
) -> None:
    answer = await registry.ask("POST", path, key=key, json={"labels": [], "kv": {}})

    assert answer.status == 200


async def test_a_key_that_may_scrape_gets_targets_and_metrics(registry: InProcessRegistry) -> None:
    await registry.post("web-1", ["prometheus:web"])

    for query in ("", "?format=http_sd", "?format=nested"):
        targets = await registry.ask("GET", f"/prometheus/web{query}", key=SCRAPER)
        assert b"web-1" in targets.body
    metrics = await registry.ask("GET", "/metrics", key=SCRAPER)
    assert b"rollcall_registry_nodes" in metrics.body
    assert (await registry.ask("HEAD", "/metrics", key=SCRAPER)).status == 200


@pytest.mark.parametrize(
    ("key", "method", "path"), [(key, *what) for key, doings in MAY_NOT.items() for what in doings]
)
async def test_a_key_may_not_do_more(
    registry: InProcessRegistry, key: str, method: str, path: str
) -> None:
    await registry.post("db-1", ["before"])

    answer = await registry.ask(method, path, key=key, json={"labels": [], "kv": {}})

    assert answer.status == 403
    assert method == "HEAD" or set(answer.json()) == {"message"}
    assert key.encode() not in answer.body
    assert (await registry.get("/nodes/db-1"))[0]["labels"] == ["before"]


@pytest.mark.parametrize(
    "key",
    [
        node_key("db-1")[:-1], node_key("db-1") + "=", node_key("db-1") + "A", "rk1.db-1.",
        node_key("db-1").replace("db-1", "db-2"), node_key("DB-1"), node_key("db-1."),
        node_key("db-1").replace("rk1", "rk2"), "rk1..", "rk1", "rk1.é.x",
    ],
)  # fmt: skip
async def test_a_node_key_that_is_not_exactly_right_is_none(
    registry: InProcessRegistry, key: str
) -> None:
    headers = {"Authorization": f"Bearer {key}".encode().decode("latin-1")}

    answer = await registry.ask(
        "POST", "/nodes/db-1", key=None, headers=headers, json={"labels": [], "kv": {}}
    )

    assert answer.status == 401


@pytest.mark.slow
async def test_no_key_is_ever_in_an_answer(registry: InProcessRegistry) -> None:
    for key in (OPS, "wrong-key-0123456789", node_key("db-1")):
        for method, path in (("POST", "/nodes/%00"), ("GET", "/none"), ("PUT", "/nodes")):
            answer = await registry.ask(method, path, key=key, data=b"{")
            assert key.encode() not in answer.body


async def test_a_path_without_a_route_is_404_and_a_wrong_method_405(
    registry: InProcessRegistry,
) -> None:
    assert (await registry.ask("GET", "/none")).status == 404
    answer = await registry.ask("PUT", "/nodes")
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]
    assert set(answer.json()) == {"message"}


async def test_the_key_is_checked_before_the_body_is_looked_at(registry: InProcessRegistry) -> None:
    for body in (b"{", b"x" * 70_000):
        assert (await registry.ask("POST", "/nodes/a", key="wrong", data=body)).status == 401
        assert (await registry.ask("POST", "/nodes/a", key=READER, data=body)).status == 403


def test_keys_made_with_an_earlier_secret_stay_good_while_it_is_listed() -> None:
    both, new = NodeKeys(["new-" * 5, "old-" * 5]), NodeKeys(["new-" * 5])
    key = NodeKeys(["old-" * 5]).make("h")

    assert both(key) == Caller("node-key:h", frozenset({"register"}), ("h",))
    assert both.make("h") == new.make("h") != key
    assert new(key) is None


def test_a_node_key_is_the_one_that_the_specification_gives() -> None:
    assert NodeKeys([NODE_SECRET]).make("web-1.example.com") == node_key("web-1.example.com")
