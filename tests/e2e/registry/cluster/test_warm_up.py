"""Registries on a bucket that is new: a real Prometheus keeps the targets of the one before."""

from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import change_settings
from tests.support.prometheus import StartPrometheus, discovery
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real("prometheus")
HOSTS = [f"web-{number}" for number in range(4)]
WARM_UP = {"warm_up_seconds": 8}
SOON_SECONDS = 180.0


def post(registry: Daemon, hostname: str) -> None:
    body = {"labels": ["prometheus:web", f"prometheus:web:host:127.0.0.{hostname[-1]}"], "kv": {}}
    answer = registry.ask("POST", f"/nodes/{hostname}", json=body)
    assert answer.status_code == 200, answer.text


def test_two_registries_withhold_targets_until_the_nodes_of_a_new_bucket_are_known(
    tmp_path: Path, free_port: FreePort, daemons: Daemons, prometheus: StartPrometheus
) -> None:
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as servers:
        both = [daemons.registry(store=servers.url(), nats=servers.settings()) for _ in range(2)]
        for hostname in HOSTS:
            post(both[0], hostname)
        server = prometheus(discovery({each.base_url: each.key for each in both}))
        until(lambda: server.hostnames() == set(HOSTS), "all targets", within=SOON_SECONDS)

        for registry in both:
            registry.terminate()
            change_settings(registry, store=servers.url("new"), nodes=WARM_UP)
        for registry in both:
            registry.start()
            assert registry.ask("GET", "/nodes").headers["Rollcall-Warming"]
        before = server.discovery_failures()
        for registry, hosts in zip(both, (HOSTS[:2], HOSTS[2:]), strict=True):
            for hostname in hosts:
                post(registry, hostname)

        def all_serve() -> bool:
            assert server.hostnames() == set(HOSTS)
            answers = [registry.ask("GET", "/prometheus/web") for registry in both]
            assert all(len(one.json()) == len(HOSTS) for one in answers if one.ok)
            return all(one.ok for one in answers)

        until(all_serve, "the end of the warm-up", within=SOON_SECONDS)
        assert server.discovery_failures() > before
        both[1].restart()
        assert both[1].ask("GET", "/prometheus/web").status_code == 200
        for registry in both:
            registry.terminate()
