"""A real Prometheus reads the worst that nodes can send, and goes on scraping a good one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.prometheus import StartPrometheus

WORST = [
    ["prometheus:web", "prometheus:web:a-b:c", "prometheus:web:1a:c", "prometheus:web::c"],
    ["prometheus:web:host:a b", "prometheus:web:host:http://h:1/m", "prometheus:web:host:::1"],
    ["prometheus:web:port:x"],
    ["prometheus:web:port:99999", "prometheus:web:host:"],
    ["prometheus:web:job:evil", "prometheus:web:instance:evil", "prometheus:web:__address__:evil"],
    ["prometheus:web:__scrape_interval__:1ms", "prometheus:web:--scrape-interval--:1ms"],
    ["prometheus:web:__scheme__:gopher", "prometheus:web:__metrics_path__:\u2028?#[]"],
    ["prometheus:web:port:-", "prometheus:web:é😀:é😀", 'prometheus:web:q:"\\\\"}\u202e'],
    ["prometheus:web@a/b c:port:1", "prometheus:web@é:k:v", "a.b-c:x", "é:y", ":z"],
]


@pytest.mark.real("prometheus")
def test_the_good_node_stays_up_amid_the_worst(
    daemons: Daemons, prometheus: StartPrometheus
) -> None:
    registry = daemons.registry(open_metrics=True)
    post(registry, "good", [f"prometheus:web:host:{registry.base_url.removeprefix('http://')}"])
    server = prometheus(
        {
            "scrape_configs": [
                {
                    "job_name": "web",
                    "scrape_interval": "1s",
                    "http_sd_configs": [
                        {
                            "url": f"{registry.base_url}/prometheus/web",
                            "refresh_interval": "1s",
                            "authorization": {"credentials": registry.key},
                        }
                    ],
                }
            ]
        }
    )

    def up() -> bool:
        found = server.query('up{job="web", instance=~"127.0.0.1:.*"}')
        return [sample["value"][1] for sample in found] == ["1"]

    def targets() -> set[str]:
        active = server.get("targets", state="active")["activeTargets"]
        return {target["discoveredLabels"]["__meta_rollcall_hostname"] for target in active}

    until(up, "the good node", within=30)
    for number, labels in enumerate(WORST):
        post(registry, f"worst-{number}", labels)
    until(lambda: {"good", "worst-0", "worst-8"} <= targets(), "the worst nodes", within=30)

    assert up()
    assert "Failed to refresh" not in server.log()
    assert "Unable to refresh target groups" not in server.log()


def post(registry: Daemon, hostname: str, labels: list[str]) -> None:
    answer = registry.ask(
        "POST", f"/nodes/{hostname}", json={"labels": labels, "kv": {"a-b.é": "\x00\n\ufffe"}}
    )
    assert answer.status_code == 200, answer.text


def documented_rules() -> list[dict[str, Any]]:
    """Return the rules of the page about Prometheus for the job `web`."""
    page = Path("docs/prometheus.md").read_text()
    settings = page.partition("cat > prometheus.yml <<'END'\n")[2].partition("\nEND\n")[0]
    [job] = [job for job in yaml.safe_load(settings)["scrape_configs"] if job["job_name"] == "web"]
    rules: list[dict[str, Any]] = job["relabel_configs"]
    return rules


@pytest.mark.real("prometheus")
def test_the_documented_rules_keep_targets_with_hosts_of_their_own(
    daemons: Daemons, prometheus: StartPrometheus
) -> None:
    registry = daemons.registry(nodes={"warm_up_seconds": 0})
    post(registry, "gw-1", ["prometheus:web:host:127.0.0.7:9", "prometheus:web:host:localhost:9"])
    post(registry, "web-1", ["prometheus:web:port:8"])
    post(registry, "web-2", ["prometheus:web:host:127.0.0.9", "prometheus:web:port:7"])
    source = {
        "url": f"{registry.base_url}/prometheus/web",
        "refresh_interval": "1s",
        "authorization": {"credentials": registry.key},
    }
    job = {
        "job_name": "web",
        "http_sd_configs": [source],
        "relabel_configs": documented_rules(),
    }
    server = prometheus({"scrape_configs": [job]})

    def targets() -> list[str]:
        active = server.get("targets", state="active")["activeTargets"]
        return sorted(target["labels"]["instance"] for target in active)

    until(targets, "targets", within=30)
    assert targets() == ["127.0.0.1:8", "127.0.0.7:9", "127.0.0.9:7", "localhost:9"]
