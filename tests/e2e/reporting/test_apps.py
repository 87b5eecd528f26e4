"""What a host with a real engine reports about its apps."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import SOON_SECONDS, nodes, status, until_listed

pytestmark = pytest.mark.real
NEVER = 3600


class ReportingHost:
    """An agent that reports once an hour: each heartbeat in between was caused by a change."""

    def __init__(self, registry: Daemon, agent: Daemon, image: str) -> None:
        self.registry = registry
        self.agent = agent
        self._image = image
        self._names: list[str] = []

    def create(self, word: str, *labels: str) -> dict[str, Any]:
        """Create an app with labels; return its record."""
        name = f"{word}-{secrets.token_hex(4)}"
        self._names.append(name)
        answer = self.agent.ask("POST", "/v1/apps", json={"name": name, "image": self._image})
        assert answer.status_code == 201, answer.text
        for label in labels:
            path = f"/v1/apps/{name}/labels"
            assert self.agent.ask("POST", path, json={"Value": label}).status_code == 200
        record: dict[str, Any] = answer.json()
        return record

    def labels(self) -> list[str]:
        """Return the labels that the registry has for it."""
        labels: list[str] = nodes(self.registry)["web-1"]["labels"]
        return labels

    def until_reported(self, *labels: str) -> None:
        """Wait until the registry has all of these labels."""
        until(lambda: set(labels) <= set(self.labels()), ", ".join(labels), within=SOON_SECONDS)

    def close(self) -> None:
        """Delete its apps."""
        for name in self._names:
            self.agent.ask("DELETE", f"/v1/apps/{name}")


@pytest.fixture
def host(daemons: Daemons, engine_url: str, busybox_image: str) -> Iterator[ReportingHost]:
    registry = daemons.registry()
    agent = daemons.agent(
        registries=[registry],
        engine=engine_url,
        node={"hostname": "web-1"},
        heartbeat_seconds=NEVER,
    )
    until_listed(registry, "web-1")
    made = ReportingHost(registry, agent, busybox_image)
    yield made
    made.close()


def test_each_app_is_a_target_group_of_its_own_as_soon_as_it_is_there(host: ReportingHost) -> None:
    shop = host.create("shop", "prometheus:web:zone:a", "tier:gold")
    blog = host.create("blog", "prometheus:web:zone:b", "prometheus:web:port:9100")

    host.until_reported(
        f"prometheus:web@{shop['name']}:zone:a", f"prometheus:web@{blog['name']}:zone:b"
    )
    host.until_reported(f"prometheus:web@{blog['name']}:port:9100")

    assert "tier:gold" not in host.labels()
    groups = host.registry.ask("GET", "/prometheus/web?format=http_sd").json()
    reported = {group["labels"]["app"]: group for group in groups}
    assert reported[shop["name"]]["targets"] == [f"web-1:{shop['http_port']}"]
    assert reported[shop["name"]]["labels"]["zone"] == "a"
    assert reported[blog["name"]]["targets"] == ["web-1:9100"]
    assert reported[blog["name"]]["labels"]["zone"] == "b"
    assert len(groups) == 2
    until(
        lambda: status(host.agent)["heartbeat"]["labels"] == host.labels(),
        "status shows the same",
        within=SOON_SECONDS,
    )


def test_a_change_of_an_apps_state_is_reported_at_once(host: ReportingHost) -> None:
    name = host.create("shop")["name"]
    host.until_reported(f"app:{name}")

    # An agent without a database adopts what others left on this engine: so it is asked, too.
    def reported(state: str) -> bool:
        apps = host.agent.ask("GET", "/v1/apps").json()
        states = {app["name"]: app["state"] for app in apps}
        kv = nodes(host.registry)["web-1"]["kv"]
        running = list(states.values()).count("running")
        stopped = sum(app["desired"] == "stopped" for app in apps)
        counts = [kv[f"apps.{word}"] for word in ("total", "running", "stopped")]
        word = {"running": "running", "exited": "stopped"}[state]
        is_reported = f"{name}={word}" in kv["apps.states"].split(",")
        numbers = [str(n) for n in (len(apps), running, stopped)]
        return states[name] == state and is_reported and counts == numbers

    until(lambda: reported("running"), "it runs", within=SOON_SECONDS)
    assert host.agent.ask("PUT", f"/v1/apps/{name}/stop").status_code == 200
    until(lambda: reported("exited"), "it does not run", within=SOON_SECONDS)
    assert host.agent.ask("DELETE", f"/v1/apps/{name}").status_code == 200
    until(lambda: f"app:{name}" not in host.labels(), "it is gone", within=SOON_SECONDS)


def test_an_unhealthy_app_has_to_the_registry_and_by_status(host: ReportingHost) -> None:
    name = host.create("shop")["name"]
    check = {"path": "/none", "interval_seconds": 1, "retries": 1}
    assert host.agent.ask("PUT", f"/v1/apps/{name}", json={"health": check}).ok

    # The agent restarts it, so that it is unhealthy only now and then.
    until(
        lambda: nodes(host.registry)["web-1"]["kv"]["apps.unhealthy"] == "1",
        "the registry is reported",
        within=SOON_SECONDS,
    )
    until(lambda: status(host.agent)["unhealthy"] == [name], "status shows it", within=SOON_SECONDS)


def test_an_app_that_was_deleted_right_before_sigterm_is_reported(host: ReportingHost) -> None:
    name = host.create("shop")["name"]
    host.until_reported(f"app:{name}")
    assert host.agent.ask("DELETE", f"/v1/apps/{name}").status_code == 200

    assert host.agent.terminate() == 0

    assert f"app:{name}" not in host.labels()
    assert f"app:{name}" not in status(host.agent)["heartbeat"]["labels"]
    host.agent.start()


def test_apps_work_while_every_registry_is_away(host: ReportingHost) -> None:
    host.registry.kill()

    name = host.create("shop")["name"]

    listed = host.agent.ask("GET", "/v1/apps").json()
    assert [app["name"] for app in listed if app["name"] == name] == [name]
    assert host.agent.ask("PUT", f"/v1/apps/{name}/stop").json()["state"] == "exited"
