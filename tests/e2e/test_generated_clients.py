"""Clients that bravado makes from the Swagger documents, used against real daemons.

They check each request and each answer against the document.
"""

import secrets
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import requests

from tests.support.daemons import Daemon, Daemons, FreePort

pytestmark = pytest.mark.real
READER = "reader-key-0123456789"


def client_of(daemon: Daemon, key: str | None = None) -> Any:
    """Make a client from the document of a daemon; without a key, it has the operator's."""
    # Its import takes two seconds of a processor, in each worker that collects tests.
    http = import_module("bravado.requests_client").RequestsClient()
    host = daemon.base_url.removeprefix("http://")
    http.set_api_key(host, key or daemon.key, param_name="Authorization", param_in="header")
    swagger_client = import_module("bravado.client").SwaggerClient
    return swagger_client.from_url(f"{daemon.base_url}/swagger.json", http_client=http)


def first_lines(call: Any, count: int) -> list[str]:
    """Send the request of a call whose answer is a stream, and return the first lines of that."""
    request = call.future.request.prepare()
    with requests.Session() as session, session.send(request, stream=True, timeout=60) as answer:
        lines = answer.iter_lines(decode_unicode=True)
        return [next(lines) for _ in range(count)]


def test_a_client_posts_nodes_and_lists_nodes_and_targets(daemons: Daemons) -> None:
    client = client_of(daemons.registry())
    heartbeat = {"labels": ["service:web", "prometheus:node:port:9100"], "kv": {"rack": "r12"}}

    (posted,) = client.nodes.reportNode(hostname="web-1", heartbeat=heartbeat).result()
    (node,) = client.nodes.listNodes(label=["service:web"], max_age=60, watch=False).result()
    ((group,),) = client.prometheus.discoverTargets(service="node").result()

    assert node.hostname == posted.hostname == "web-1"
    assert node.kv["rack"] == "r12"
    assert group.Targets == ["web-1:9100"]
    assert client.nodes.getNode(hostname="web-1").result()[0].labels == heartbeat["labels"]
    assert client.nodes.explainNode(hostname="web-1").result().services[0]["service"] == "node"
    assert client.services.listServices().result()[0].targets == 1
    assert client.status.status().result().nodes["total"] == 1
    assert client.access.access().result().hostname is None
    assert client.healthz.health().result().message == "ok"
    assert "rollcall_registry" in client.metrics.metrics().result()
    lines = first_lines(client.nodes.listNodes(watch=True), 6)
    assert [line for line in lines if line.startswith("event")] == ["event: reset", "event: node"]
    assert "forgotten" in client.nodes.forgetNode(hostname="web-1").result().message


@pytest.fixture(scope="module")
def agent(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort, engine_url: str
) -> Iterator[Daemon]:
    keys = [
        {"name": "ops", "file": "ops.key", "allow": ["read", "write"]},
        {"name": "reader", "value": READER, "allow": ["read"]},
    ]
    folder = tmp_path_factory.mktemp("clients") / "daemons"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        yield daemons.agent(engine=engine_url, keys=keys)


@pytest.fixture(scope="module")
def reader(agent: Daemon) -> Any:
    """Return a client that may only read."""
    return client_of(agent, READER)


def test_a_client_creates_labels_stops_and_deletes_an_app(
    agent: Daemon, busybox_image: str
) -> None:
    apps, app = client_of(agent).v1, new_app(busybox_image)
    name = app["name"]

    planned = apps.createApp(app=app, dry_run=True).result()
    created = apps.createApp(app=app).result()
    try:
        labelled = apps.addLabel(app_name=name, label={"Value": "service:shop"}).result()
        stopped = apps.stopApp(app_name=name).result()
        listed = apps.listApps(label=["service:shop"], state=["exited"]).result()
    finally:
        gone = apps.deleteApp(app_name=name).result()

    assert planned.app.container_id is None
    assert (created.state, created.health.command) == ("running", None)
    assert labelled.labels == ["service:shop"]
    assert stopped.desired == "stopped"
    assert [each.name for each in listed] == [name]
    assert "deleted" in gone.message


def test_a_client_that_may_only_read_reads_all_of_an_app(
    agent: Daemon, reader: Any, busybox_image: str
) -> None:
    app = new_app(busybox_image)
    name = app["name"]
    assert agent.ask("POST", "/v1/apps", json=app).status_code == 201
    try:
        stats = reader.v1.getStats(app_name=name).result()
        processes = reader.v1.listProcesses(app_name=name).result()
        assert agent.ask("PUT", f"/v1/apps/{name}/stop").ok
        shown = reader.v1.getApp(app_name=name).result()
        # It ends, since the app has.
        log = reader.v1.getLogs(app_name=name, tail="all", since="2026-01-31", follow=True).result()
        (revision,) = reader.v1.getHistory(app_name=name).result()
        events = reader.v1.listEvents(app_name=name).result()
        with pytest.raises(import_module("bravado.exception").HTTPConflict):
            reader.v1.getStats(app_name=name).result()
        with pytest.raises(import_module("bravado.exception").HTTPForbidden):
            reader.v1.startApp(app_name=name).result()
    finally:
        agent.ask("DELETE", f"/v1/apps/{name}")

    assert stats.cpu_percent is None
    assert processes[0].command.startswith("/")
    assert shown.env == {"MODE": None}
    assert isinstance(log, str)
    assert (revision.operation, revision.env) == ("create", {"MODE": None})
    assert [each.action for each in events][:2] == ["create", "stop"]


def test_a_client_reads_what_an_agent_shows_of_itself(reader: Any) -> None:
    assert reader.healthz.health().result().message == "ok"
    assert reader.access.access().result().allow == ["read"]
    assert reader.v1.usage().result().step_seconds == 60
    assert "rollcall_" in reader.metrics.metrics().result()
    assert first_lines(reader.v1.followEvents(), 2)[1] == "event: reset"


def new_app(image: str) -> dict[str, Any]:
    return {
        "name": f"made-{secrets.token_hex(4)}",
        "image": image,
        "env": {"MODE": "test"},
        "health": {"path": "/"},
        "stop_seconds": 1,
    }
