"""An agent, a watch and a Prometheus behind a plain TCP load balancer before three registries."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import change_settings, metric_value
from tests.support.prometheus import StartPrometheus, discovery
from tests.support.registry.cut_off import Cable
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real("prometheus")
KEY = "the-key-that-all-of-them-accept"
ALL = ["read", "write"]
KEYS = [{"name": "own", "file": "ops.key", "allow": ALL}, {"name": "x", "value": KEY, "allow": ALL}]
HEADERS = {"Authorization": KEY}
SOON_SECONDS = 180.0


class Watch:
    """A client that follows changes, and connects again whenever the stream ends."""

    def __init__(self, url: str) -> None:
        self.hostnames: list[str] = []
        self.resets = 0
        self.connections = 0
        self._url = f"{url}/nodes?watch=true"
        self._last_id = ""
        self._ended = False

    def run(self) -> None:
        while not self._ended:
            with suppress(requests.RequestException):
                self._follow()

    def end(self) -> None:
        self._ended = True

    def _follow(self) -> None:
        headers = HEADERS | ({"Last-Event-ID": self._last_id} if self._last_id else {})
        with requests.get(self._url, headers=headers, stream=True, timeout=30) as response:
            self.connections += response.ok
            for line in response.iter_lines(chunk_size=1, decode_unicode=True):
                name, _, value = line.partition(": ")
                if name == "id":
                    self._last_id = value
                self.resets += line == "event: reset"
                if name == "data" and '"hostname":"w' in value:
                    self.hostnames.append(value.partition('"hostname":"')[2].partition('"')[0])
                if self._ended:
                    return


@contextmanager
def watching(url: str) -> Iterator[Watch]:
    watch = Watch(url)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()


def post(url: str, hostname: str) -> None:
    number = hostname.removeprefix("w")
    body = {"labels": ["prometheus:web", f"prometheus:web:host:127.0.0.{number}"], "kv": {}}

    def is_accepted() -> bool:
        with suppress(requests.ConnectionError):  # its registry was killed
            answer = requests.post(
                f"{url}/nodes/{hostname}", json=body, headers=HEADERS, timeout=30
            )
            return answer.ok
        return False

    until(is_accepted, f"{hostname} accepted", within=SOON_SECONDS)


def is_watched(registry: Daemon) -> bool:
    return metric_value(registry, "rollcall_registry_watchers") == 1


def agent_of(url: str, daemons: Daemons) -> Daemon:
    """Start an agent that reports to a URL."""
    agent = daemons.agent(heartbeat_seconds=2)
    agent.terminate()
    (agent.config_path.parent / "balancer.key").write_text(KEY)
    change_settings(agent, registries=[{"url": url, "key_file": "balancer.key"}])
    agent.start()
    return agent


def heartbeats(agent: Daemon, url: str) -> float:
    """Return how many heartbeats were taken."""
    name = f'rollcall_agent_heartbeats_total{{outcome="taken",registry="{url}"}}'
    return metric_value(agent, name) or 0.0


def test_an_agent_a_watch_and_prometheus_go_on_when_one_of_three_registries_is_killed(
    tmp_path: Path, free_port: FreePort, daemons: Daemons, prometheus: StartPrometheus
) -> None:
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as servers:
        shared: dict[str, Any] = {"store": servers.url(), "nats": servers.settings(), "keys": KEYS}
        registries = [daemons.registry(**shared) for _ in range(3)]
        with Cable(free_port(), *(registry.port for registry in registries)) as balancer:
            url = f"http://127.0.0.1:{balancer.port}"
            agent, server = agent_of(url, daemons), prometheus(discovery({url: KEY}))
            with watching(url) as watch:
                names = [f"w{number}" for number in range(1, 10)]
                for name in names:
                    post(url, name)
                until(lambda: server.hostnames() == set(names), "targets", within=SOON_SECONDS)
                until(lambda: watch.hostnames == names, "changes", within=SOON_SECONDS)

                next(filter(is_watched, registries)).kill()

                taken = heartbeats(agent, url)
                post(url, "w99")

                def has_gone_on() -> bool:
                    found = server.hostnames()
                    assert found >= set(names)
                    return found == {*names, "w99"}

                until(has_gone_on, "the new target", within=SOON_SECONDS)
                until(lambda: watch.hostnames == [*names, "w99"], "it", within=SOON_SECONDS)
                assert (watch.resets, watch.connections) == (1, 2)
                until(lambda: heartbeats(agent, url) > taken, "heartbeats", within=SOON_SECONDS)
            agent.terminate()
            for registry in filter(lambda each: each.is_running, registries):
                registry.terminate()
