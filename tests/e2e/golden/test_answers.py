"""The answers of both daemons are those in the files beside this one.

``ROLLCALL_GOLDEN=write`` writes the files anew.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Daemon, Daemons
from tests.support.httpd.transcript import Request, compare, transcript
from tests.support.pages import TOP

WRITES = os.environ.get("ROLLCALL_GOLDEN") == "write"
FOLDER = Path(__file__).parent
PROGRAMS = ("agent", "registry", "httpd", "clients", "config", "runtime")
# Methods that log an event: those of a logger, and those of a part with its own rule for it.
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "_warn", "_warn_once"}
KEYS = {
    "reader": "reader-key-0123456789",
    "writer": "writer-key-0123456789",
    "scraper": "scraper-key-0123456789",
}
SETTINGS = [
    {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
    {"name": "reader", "value": KEYS["reader"], "allow": ["read"]},
    {"name": "writer", "value": KEYS["writer"], "allow": ["write"]},
    {"name": "scraper", "value": KEYS["scraper"], "allow": ["scrape"]},
]
WEB = {
    "labels": ["service:web", "prometheus:shop", "prometheus:shop:port:8080", "rack:r1"],
    "kv": {"agent.id": "1", "agent.url": "https://web-1:7656", "rack": "r1"},
}
REGISTRY = [
    Request("GET", "/healthz", key=""),
    Request("GET", "/nodes", key=""),
    Request("GET", "/nodes"),
    Request("POST", "/nodes/web-1", WEB),
    Request("POST", "/nodes/web-1", WEB),
    Request("POST", "/nodes/WEB-1.", {"labels": ["service:db"], "kv": {}}),
    Request("POST", "/nodes/web-2", {"labels": ["service:web"], "kv": {"rack": "r2"}}),
    Request("POST", "/nodes/db-1", {"labels": ["prometheus:node:port:x"], "kv": {}}),
    Request("POST", "/nodes/web-1", {"labels": ["a"], "kv": {"agent.id": "2"}}),
    *(
        Request("POST", "/nodes/web-3", body)
        for body in (
            *(b"", b"{", b"[]", b'{"labels": [], "labels": [], "kv": {}}', b'{"labels": []}'),
            *(
                {"labels": [1], "kv": {}},
                {"labels": [], "kv": {"a": 1}},
                {"labels": [""], "kv": {}},
            ),
            *({"labels": ["a:b\n"], "kv": {}}, {"labels": [], "kv": {}, "more": 1}),
            *({"labels": ["x" * 2000], "kv": {}}, {"labels": ["a", "a"], "kv": {}}),
        )
    ),
    Request("POST", "/nodes/web_1%20", WEB),
    Request("POST", "/nodes/web-1", WEB, key="reader"),
    Request("POST", "/nodes/web-1", WEB, key="scraper"),
    Request("PUT", "/nodes/web-1", WEB),
    Request("POST", "/nodes/web-1", WEB, headers={"Content-Encoding": "gzip"}),
    Request("GET", "/nodes/web-1", key="reader"),
    Request("GET", "/nodes/none"),
    Request("GET", "/nodes?label=service:web"),
    Request("GET", "/nodes?label=service:web&limit=1"),
    Request("GET", "/nodes?prefix=prometheus:&kv=rack:r1&search=web"),
    Request("GET", "/nodes?max_age=0"),
    Request("GET", "/nodes?limit=0"),
    Request("GET", "/nodes?unknown=1"),
    Request("GET", "/nodes?stale=true"),
    Request("GET", "/nodes?apps_down=true"),
    Request("GET", "/nodes?held=true&total=true"),
    Request("GET", "/nodes", headers={"Accept": "text/html"}),
    Request("GET", "/nodes", headers={"If-None-Match": "*"}),
    Request("GET", "/nodes", key="writer"),
    Request("GET", "/nodes/web-1/explain"),
    Request("GET", "/nodes/none/explain"),
    Request("GET", "/prometheus/shop", key="scraper"),
    Request("GET", "/prometheus/shop?format=http_sd", key="scraper"),
    Request("GET", "/prometheus/shop?format=no", key="scraper"),
    Request("GET", "/prometheus/shop?explain=web-1"),
    Request("GET", "/prometheus/shop?explain=none"),
    Request("GET", "/prometheus/shop?explain=web-1", key="scraper"),
    Request("GET", "/prometheus/none", key="scraper"),
    Request("GET", "/services"),
    Request("GET", "/access"),
    Request("GET", "/access", key="scraper"),
    Request("GET", "/access", key="reader"),
    Request("DELETE", "/nodes/web-2?stale=true"),
    Request("DELETE", "/nodes/web-2", key="reader"),
    Request("DELETE", "/nodes/web-2"),
    Request("DELETE", "/nodes/web-2"),
    Request("DELETE", "/nodes/web-1?agent_id=9"),
    Request("GET", "/none"),
    Request("GET", "/", key=""),
    Request("GET", "/metrics", key="writer"),
    Request("GET", "/swagger.json", key="scraper"),
]
TEXT = {"Content-Type": "text/plain"}


PORTS = {"ssh_port": 30501, "http_port": 30502}
APP = {"name": "shop", **PORTS, "memory": 32, "env": {"A": "1"}, "description": "a shop"}
BAD_APPS = [
    *(b"", b"{", {"name": "b"}, {"name": "B", "image": "IMAGE"}, {"name": "b", "image": ""}),
    *(
        {"name": "b", "image": "IMAGE", **wrong}
        for wrong in (
            *({"memory": 1}, {"cpu": "80"}, {"more": 1}, {"http_port": 80.0}, {"env": {"A=": "1"}}),
            {"image": "rollcall-test-none:1", "pull": "never"},
        )
    ),
]
LABELS = "/v1/apps/shop/labels"
AGENT = [
    Request("GET", "/healthz", key=""),
    Request("GET", "/v1/apps"),
    Request("GET", "/v1/apps", key=""),
    Request("POST", "/v1/apps?dry_run=true", {**APP, "image": "IMAGE"}),
    Request("POST", "/v1/apps", {**APP, "image": "IMAGE"}),
    Request("POST", "/v1/apps", {**APP, "image": "IMAGE"}),
    Request("POST", "/v1/apps", {**APP, "image": "IMAGE"}, key="reader"),
    *(Request("POST", "/v1/apps", body) for body in BAD_APPS),
    Request("GET", "/v1/apps/shop"),
    Request("GET", "/v1/apps/shop", key="reader"),
    Request("GET", "/v1/apps/none"),
    Request("GET", "/v1/apps?state=running&label=x"),
    Request("POST", LABELS, {"Value": "prometheus:shop"}),
    Request("POST", LABELS, {"Value": "prometheus:shop"}),
    Request("POST", LABELS, {"Value": "nocolon"}),
    Request("DELETE", LABELS, {"Value": "prometheus:shop"}),
    Request("DELETE", LABELS, {"Value": "prometheus:shop"}),
    Request("PUT", "/v1/apps/shop?dry_run=true", {"env": {"A": "2"}}),
    Request("PUT", "/v1/apps/shop", {"env_set": {"B": "2"}, "env_unset": ["A"]}),
    Request("PUT", "/v1/apps/shop", {"memory": 48}),
    Request("PUT", "/v1/apps/shop", {"memory": 1}),
    Request("PUT", "/v1/apps/shop", {"name": "other"}),
    *(
        Request("PUT", f"/v1/apps/{path}")
        for change in ("restart", "rebuild", "rollback", "stop", "start")
        for path in (f"shop/{change}?dry_run=true", f"shop/{change}", f"none/{change}")
    ),
    Request("PUT", "/v1/apps/shop/rollback", {"revision": 99}),
    Request("GET", "/v1/apps/shop/history"),
    Request("GET", "/v1/apps/shop/events"),
    Request("GET", "/v1/apps/shop/logs?tail=0"),
    Request("GET", "/v1/apps/shop/logs?tail=-1"),
    Request("PUT", "/v1/apps/shop/keys", b"a good password", headers=TEXT),
    Request("PUT", "/v1/apps/shop/keys", b"short", headers=TEXT),
    Request("PUT", "/v1/apps/shop/data", b"no tar"),
    Request("PUT", "/v1/apps/shop/stop"),
    Request("PUT", "/v1/apps/shop/data", b"no tar"),
    Request("GET", "/v1/apps/shop/stats"),
    Request("GET", "/v1/apps/shop/processes"),
    Request("GET", "/access", key="reader"),
    Request("DELETE", "/v1/apps/shop?dry_run=true"),
    Request("DELETE", "/v1/apps/shop", key="reader"),
    Request("DELETE", "/v1/apps/shop"),
    Request("DELETE", "/v1/apps/shop"),
    Request("PATCH", "/v1/apps/shop"),
    Request("GET", "/v1/none"),
]


@pytest.mark.real
def test_the_registry_answers_as_before(daemons: Daemons) -> None:
    registry = daemons.registry(keys=SETTINGS)
    text = transcript(registry, REGISTRY, {**KEYS, "ops": registry.key}, texts_of(registry))
    compare(FOLDER / "registry.txt", text, write=WRITES)


@pytest.mark.real
def test_the_agent_answers_as_before(daemons: Daemons, engine_url: str, busybox_image: str) -> None:
    agent = daemons.agent(
        keys=SETTINGS, engine=engine_url, node={"hostname": "web-1"}, apps={"ports": "30500-30599"}
    )
    own = {**texts_of(agent), busybox_image: "IMAGE"}
    asked = [with_image(each, busybox_image) for each in AGENT]
    text = transcript(agent, asked, {**KEYS, "ops": agent.key}, own)
    compare(FOLDER / "agent.txt", text, write=WRITES)


def with_image(request: Request, image: str) -> Request:
    """Return a request with an image of this run."""
    if not isinstance(request.body, dict) or request.body.get("image") != "IMAGE":
        return request
    return request._replace(body={**request.body, "image": image})


def texts_of(daemon: Daemon) -> dict[str, str]:
    return {str(daemon.config_path.parent): "FOLDER", str(daemon.port): "PORT"}


@pytest.mark.parametrize("daemon", ["registry", "agent"])
def test_the_metrics_have_the_names_of_before(daemons: Daemons, daemon: str) -> None:
    started = daemons.registry() if daemon == "registry" else daemons.agent()
    lines = started.ask("GET", "/metrics").text.splitlines()
    names = [line for line in lines if line.startswith(("# HELP rollcall", "# TYPE rollcall"))]
    compare(FOLDER / f"metrics-{daemon}.txt", "\n".join(names) + "\n", write=WRITES)


def test_the_log_has_the_events_of_before() -> None:
    found = {
        event
        for program in PROGRAMS
        for file in (TOP / program).rglob("*.py")
        for event in events_in(ast.parse(file.read_text("utf-8")))
    }
    compare(FOLDER / "events.txt", "".join(f"{each}\n" for each in sorted(found)), write=WRITES)


def events_in(tree: ast.Module) -> Iterator[Any]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=level), args=[ast.Constant(value=str(event)), *_]
            ) if level in LEVELS:
                yield event
