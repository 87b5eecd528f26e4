"""The main job, end to end: an app on a host, the host in the registry, both in Prometheus."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import docker.errors
import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.images import HELLO_PAGE
from tests.support.prometheus import StartPrometheus

pytestmark = pytest.mark.real
SOON_SECONDS = 10.0


@dataclass(frozen=True)
class Deployment:
    """Both daemons with one app."""

    registry: Daemon
    agent: Daemon
    app: dict[str, Any]

    def node(self) -> dict[str, Any] | None:
        """Return the one node that is in the registry."""
        nodes: list[dict[str, Any]] = self.registry.ask("GET", "/nodes").json()
        return nodes[0] if nodes else None


@pytest.fixture(scope="module")
def deployment(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    engine_url: str,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("site")
    name = f"first-light-{secrets.token_hex(4)}"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        registry = daemons.registry()
        # The host's name is made up: this is where Prometheus finds it.
        labels = ["service:test", "prometheus:rollcall:host:127.0.0.1"]
        agent = daemons.agent(registries=[registry], engine=engine_url, node={"labels": labels})
        try:
            answer = agent.ask("POST", "/v1/apps", json={"name": name, "image": busybox_image})
            assert answer.status_code == 201, answer.text
            yield Deployment(registry, agent, answer.json())
        finally:
            agent.ask("DELETE", f"/v1/apps/{name}")
            with suppress(docker.errors.NotFound):
                docker_client.remove_container(name, force=True, v=True)


def test_the_app_answers_on_its_http_port(deployment: Deployment) -> None:
    assert deployment.app["state"] == "running"
    page = f"http://127.0.0.1:{deployment.app['http_port']}/"
    # The page may take a moment longer than the container.
    assert until(lambda: _text(page), page, within=SOON_SECONDS) == HELLO_PAGE


def test_the_agent_gives_the_app_as_its_engine_does(
    deployment: Deployment, docker_client: docker.APIClient
) -> None:
    name = deployment.app["name"]
    record = deployment.agent.ask("GET", f"/v1/apps/{name}").json()
    assert record["container_id"] == docker_client.inspect_container(name)["Id"]
    assert [app["name"] for app in deployment.agent.ask("GET", "/v1/apps").json()].count(name) == 1
    commands = [
        row["command"] for row in deployment.agent.ask("GET", f"/v1/apps/{name}/processes").json()
    ]
    assert any("httpd" in command for command in commands)


def test_the_registry_lists_the_host_with_its_app(deployment: Deployment) -> None:
    def node_with_app() -> dict[str, Any] | None:
        node = deployment.node()
        return node if node and f"app:{deployment.app['name']}" in node["labels"] else None

    node = until(node_with_app, "the app among the node's labels", within=SOON_SECONDS)
    assert "service:test" in node["labels"]
    assert node["kv"]["docker.state"] != "unreachable"
    assert deployment.registry.ask("GET", f"/nodes/{node['hostname']}").json() == [node]


def test_prometheus_finds_the_agent_through_the_registry_and_scrapes_it(
    deployment: Deployment, prometheus: StartPrometheus
) -> None:
    url = f"{deployment.registry.base_url}/prometheus/rollcall"
    found = {
        "url": url,
        "refresh_interval": "1s",
        "authorization": {"credentials_file": str(deployment.registry.key_path)},
    }
    job = {
        "job_name": "rollcall",
        "scrape_interval": "1s",
        "authorization": {"credentials_file": str(deployment.agent.key_path)},
        "http_sd_configs": [found],
    }
    server = prometheus({"scrape_configs": [job]})
    up = until(lambda: server.query("up"), "up", within=60.0)
    node = deployment.node()
    assert node is not None
    target = deployment.agent.base_url.removeprefix("http://")
    assert [sample["metric"]["instance"] for sample in up] == [target]
    until(lambda: server.query('up{job="rollcall"} == 1'), "up == 1", within=30.0)
    (active,) = server.get("targets")["activeTargets"]
    assert active["discoveredLabels"]["__meta_rollcall_hostname"] == node["hostname"]
    assert active["lastError"] == ""


def _text(url: str) -> str | None:
    try:
        return requests.get(url, timeout=5).text
    except requests.ConnectionError:
        return None
