"""Who may do what."""

import base64
import hashlib
import hmac

import pytest

from config import VERSION
from registry.api.access import NodeKeys
from tests.support.registry.in_process import (
    NODE_SECRET,
    OPS,
    SCRAPER,
    WEB_HOSTS,
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
    for key in (OPS, SCRAPER):
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


async def test_a_key_is_told_what_it_allows() -> None:
    async with in_process_registry(load=False) as registry:
        ops, scraper = [await registry.get("/access", key=key) for key in (OPS, SCRAPER)]
        assert ops == {
            "name": "ops",
            "allow": ["read", "write"],
            "daemon": "registry",
            "version": VERSION,
            "hostname": None,
        }
        assert (scraper["name"], scraper["allow"]) == ("scraper", ["read"])
        assert (await registry.ask("GET", "/access?x=1")).status == 400
        assert (await registry.ask("GET", "/access", key=None)).status == 401
        assert (await registry.ask("GET", "/access", key=WEB_HOSTS)).status == 403


async def test_the_health_needs_no_key(registry: InProcessRegistry) -> None:
    assert (await registry.ask("GET", "/healthz", key=None)).json() == {"message": "ok"}


MAY: dict[str, list[tuple[str, str]]] = {
    OPS: [("GET", "/nodes"), ("POST", "/nodes/db-1"), ("DELETE", "/nodes/db-1"),
          ("GET", "/metrics"), ("GET", "/swagger.json"), ("GET", "/prometheus/x")],
    SCRAPER: [("GET", "/nodes"), ("HEAD", "/nodes"), ("GET", "/prometheus/x"), ("GET", "/metrics"),
              ("GET", "/swagger.json")],
    WEB_HOSTS: [("POST", "/nodes/web-1"), ("POST", "/nodes/WEB-1."), ("DELETE", "/nodes/web-1")],
    node_key("db-1"): [("POST", "/nodes/db-1"), ("POST", "/nodes/DB-1."),
                       ("DELETE", "/nodes/db-1")],
}  # fmt: skip
MAY_NOT: dict[str, list[tuple[str, str]]] = {
    SCRAPER: [("POST", "/nodes/db-1"), ("DELETE", "/nodes/db-1")],
    WEB_HOSTS: [("GET", "/nodes"), ("GET", "/nodes/web-1"), ("POST", "/nodes/db-1"),
                ("POST", "/nodes/xweb-1"), ("DELETE", "/nodes/db-1"), ("GET", "/metrics"),
                ("GET", "/prometheus/x"), ("GET", "/swagger.json"), ("POST", "/nodes/db-1%00web-")],
    node_key("db-1"): [("POST", "/nodes/db-2"), ("POST", "/nodes/db-1.x"),
                       ("DELETE", "/nodes/web-1"), ("GET", "/nodes/db-1"), ("GET", "/nodes"),
                       ("GET", "/metrics"),
                       ("POST", "/nodes/db-1%00"), ("POST", "/nodes/db%2D1%2Fx")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "method", "path"), [(key, *what) for key, doings in MAY.items() for what in doings]
)
async def test_a_key_may_do_what_it_is_for(
    registry: InProcessRegistry, key: str, method: str, path: str
) -> None:
    await registry.post("db-1")
    await registry.post("web-1")

    answer = await registry.ask(method, path, key=key, json={"labels": [], "kv": {}})

    assert answer.status == 200


@pytest.mark.parametrize(
    ("key", "method", "path"), [(key, *what) for key, doings in MAY_NOT.items() for what in doings]
)
async def test_a_key_may_not_do_more(
    registry: InProcessRegistry, key: str, method: str, path: str
) -> None:
    await registry.post("db-1", ["before"])

    answer = await registry.ask(method, path, key=key, json={"labels": [], "kv": {}})

    assert answer.status == 403
    assert set(answer.json()) == {"message"}
    assert key not in answer.json()["message"]
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
        assert (await registry.ask("POST", "/nodes/a", key=SCRAPER, data=body)).status == 403


def test_keys_made_with_an_earlier_secret_stay_good_while_it_is_listed() -> None:
    old, both, new = (
        NodeKeys(["old-" * 5]),
        NodeKeys(["new-" * 5, "old-" * 5]),
        NodeKeys(["new-" * 5]),
    )
    key = old.make("h")

    assert both.hostname_of(key) == "h"
    assert both.make("h") == new.make("h") != key
    assert new.hostname_of(key) is None


def test_a_node_key_is_the_one_that_the_specification_gives() -> None:
    assert NodeKeys([NODE_SECRET]).make("web-1.example.com") == node_key("web-1.example.com")
