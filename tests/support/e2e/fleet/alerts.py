"""The Prometheus of a fleet: what it scrapes, and the rules by which it alerts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.e2e.fleet.operator import REGISTRY_PORT
from tests.support.e2e.rollout_page import REGISTRY
from tests.support.monitoring import RULES

HOST_STALE = "RollcallHostStale"


def rules_without_wait(alert: str, folder: Path) -> Path:
    """Return a copy of the rules, in a folder, in which one alert fires at once."""
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    (found,) = [
        rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == alert
    ]
    del found["for"]
    made = folder / RULES.name
    made.write_text(yaml.safe_dump(rules))
    return made


def fleet_settings(work: Path, rules: Path) -> Mapping[str, Any]:
    """Return prometheus.yml with the keys and certificates of docs/rollout.md, in its folder.

    Each target is scraped every two seconds, so that one that restarts has as long to answer.
    """
    folder = work / "prometheus"
    own = {"ca_file": folder / "ca.crt", "cert_file": folder / "tls.crt"}
    own["key_file"] = folder / "tls.key"
    registry = {
        "authorization": {"credentials_file": str(folder / "scraper")},
        "tls_config": {name: str(path) for name, path in own.items()},
    }
    url = f"https://{REGISTRY}:{REGISTRY_PORT}/prometheus/rollcall"
    agents = {
        "job_name": "rollcall",
        "scheme": "https",
        "http_sd_configs": [{"url": url, "refresh_interval": "1s", **registry}],
        "authorization": {"credentials_file": str(folder / "agents.key")},
        "tls_config": {"ca_file": str(folder / "ca.crt")},
    }
    itself = {
        "job_name": "rollcall-registry",
        "scheme": "https",
        "static_configs": [{"targets": [f"{REGISTRY}:{REGISTRY_PORT}"]}],
        **registry,
    }
    return {
        "global": {"scrape_interval": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [agents, itself],
    }
