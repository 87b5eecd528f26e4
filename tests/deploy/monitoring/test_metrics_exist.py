"""The rules and the dashboard on real daemons, which a real Prometheus scrapes."""

import datetime as dt
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest
import requests

from dev.waiting import until
from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import change_settings
from tests.support.monitoring import RULES, expressions, labels_in, selectors_in
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.registry.callback_receiver import callback_receiver
from tests.support.requirements import need

pytestmark = pytest.mark.real("prometheus")
SOON_SECONDS = 60.0
YEAR = dt.timedelta(days=365)
# The agent measures disks for the first time a minute after its start, and no host is absent where
# all is well. These have no series here, but this label; the tests of the daemons look at it.
WITHOUT_SERIES = {
    "rollcall_app_volumes_bytes": "app",
    "rollcall_app_layer_bytes": "app",
    "rollcall_registry_host_absent": "host",
}
# What is there last: the app is measured, and rules have recorded what was scraped twice.
COMPLETE = (
    "rollcall_app_healthy",
    "rollcall_app_cpu_seconds_total",
    "prometheus_sd_discovered_targets",
    "instance:rollcall_heartbeats:rate5m",
    "instance:rollcall_loop_delay_seconds:p99_5m",
    'instance_route:rollcall_http_request_duration_seconds:p99_5m{route="/nodes/{hostname}"}',
)


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    engine_url: str,
    busybox_image: str,
) -> Iterator[Prometheus]:
    """Yield a Prometheus with the rules, of a registry with TLS and a host with a healthy app."""
    need("prometheus")
    folder = tmp_path_factory.mktemp("monitoring")
    authority = Authority(folder / "certificates", lifetime=YEAR)
    with ExitStack() as stack:
        daemons = stack.enter_context(Daemons(folder=folder / "daemons", free_port=free_port))
        pair = authority.issue("127.0.0.1")
        files = {"certificate": str(pair.certificate), "key": str(pair.key)}
        callback = {"url": stack.enter_context(callback_receiver()).url, "key_file": "ops.key"}
        registry = daemons.registry(
            tls=files, trust=(str(authority.ca), None), callbacks=[callback]
        )
        _be_rejected(registry, authority)
        agent = daemons.agent(
            engine=engine_url,
            node={"labels": ["prometheus:rollcall:host:127.0.0.1"]},
            heartbeat_seconds=1,
        )
        name = f"monitored-{secrets.token_hex(4)}"
        stack.callback(agent.ask, "DELETE", f"/v1/apps/{name}")
        _run_app(agent, name, busybox_image)
        _report_to(registry, agent, authority)
        port = free_port()
        settings = _settings(registry, agent, authority, prometheus_port=port)
        yield stack.enter_context(
            running_prometheus(settings, folder=folder / "prometheus", port=port)
        )


def _be_rejected(registry: Daemon, authority: Authority) -> None:
    """Ask with a wrong key, long before anything is scraped."""
    answer = requests.get(
        f"{registry.base_url}/nodes",
        headers={"Authorization": "wrong-key-of-a-stranger"},
        verify=str(authority.ca),
        timeout=30,
    )
    assert answer.status_code == HTTPStatus.UNAUTHORIZED


def _run_app(agent: Daemon, name: str, image: str) -> None:
    health = {"command": ["hostname"], "interval_seconds": 1}
    created = agent.ask("POST", "/v1/apps", json={"name": name, "image": image, "health": health})
    assert created.status_code == HTTPStatus.CREATED, created.text
    until(
        lambda: agent.ask("GET", f"/v1/apps/{name}").json()["healthy"],
        "the app is healthy",
        within=SOON_SECONDS,
    )


def _report_to(registry: Daemon, agent: Daemon, authority: Authority) -> None:
    """Start the agent again, with a registry; at its start it measures apps at once."""
    agent.terminate()
    line = {"url": registry.base_url, "key_file": str(registry.key_path), "ca": str(authority.ca)}
    change_settings(agent, registries=[line])
    agent.start()


def _settings(
    registry: Daemon, agent: Daemon, authority: Authority, *, prometheus_port: int
) -> dict[str, Any]:
    """Return settings with the jobs of docs/prometheus.md."""
    tls = {"ca_file": str(authority.ca)}
    address = registry.base_url.removeprefix("https://")
    shown = {"authorization": {"credentials_file": str(registry.key_path)}, "tls_config": tls}
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": "rollcall",
                "authorization": {"credentials_file": str(agent.key_path)},
                "http_sd_configs": [
                    {"url": f"{registry.base_url}/prometheus/rollcall", "refresh_interval": "1s"}
                    | shown
                ],
            },
            {
                "job_name": "rollcall-registry",
                "scheme": "https",
                "static_configs": [{"targets": [address]}],
            }
            | shown,
            {
                "job_name": "prometheus",
                "static_configs": [{"targets": [f"127.0.0.1:{prometheus_port}"]}],
            },
        ],
    }


@pytest.fixture(scope="module")
def complete(prometheus: Prometheus) -> Prometheus:
    """Return the Prometheus once it has scraped and recorded everything."""
    for expression in COMPLETE:
        until(partial(prometheus.query, expression), expression, within=SOON_SECONDS)
    return prometheus


def test_each_selector_of_rules_and_dashboard_matches_series(complete: Prometheus) -> None:
    missing = []
    for expression in expressions():
        labels: set[str] = set()
        for selector in selectors_in(expression.text):
            if selector.name in WITHOUT_SERIES:
                series = complete.get("targets/metadata", metric=selector.name)
                labels |= {"job", "instance", WITHOUT_SERIES[selector.name]}
            else:
                series = complete.get("series", **{"match[]": str(selector)})
                labels |= {name for each in series for name in each}
            if not series:
                missing.append(f"{expression.place}: {selector}")
        lacking = (labels_in(expression.text) | expression.shown) - labels
        missing += [f"{expression.place}: {label}" for label in sorted(lacking)]

    assert missing == []


def test_no_alert_is_raised_where_all_is_well(complete: Prometheus) -> None:
    def groups() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = complete.get("rules")["groups"]
        return found

    now = dt.datetime.now(dt.UTC)
    until(
        lambda: all(dt.datetime.fromisoformat(each["lastEvaluation"]) > now for each in groups()),
        "all rules are evaluated again",
        within=SOON_SECONDS,
    )
    rules = [rule for group in groups() for rule in group["rules"]]

    assert len(rules) > 20
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
    raised = {rule["name"]: rule["alerts"] for rule in rules if rule.get("alerts")}
    assert raised == {}
