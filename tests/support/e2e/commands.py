"""Asking an agent's own commands, as an operator on the host does."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from dev.waiting import until
from tests.support.daemons import Daemon, merged
from tests.support.forks import run_program

SOON_SECONDS = 20.0


def run_command(
    program: str, settings: Daemon | Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of a daemon, with the daemon's settings or those in a file."""
    file = settings if isinstance(settings, Path) else settings.config_path
    path = Path(sys.executable).with_name(program)
    return run_program([path, "--config", file, *arguments], timeout=60)


def node_key(registry: Daemon, hostname: str) -> str:
    """Print a node key by the command of a registry with a ``node_secret``."""
    printed = run_command("rollcall-registry", registry, "node-key", hostname)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout.strip()


def status(agent: Daemon) -> dict[str, Any]:
    """Return what ``rollcall-agent status --json`` prints."""
    printed = run_command("rollcall-agent", agent, "status", "--json")
    assert printed.stderr == ""
    view: dict[str, Any] = json.loads(printed.stdout)
    return view


def registry_statuses(agent: Daemon) -> dict[str, dict[str, Any]]:
    """Return how an agent stands with each of its registries, from the file that it keeps."""
    kept = json.loads((agent.config_path.parent / "status.json").read_text())
    return {registry_status["url"]: registry_status for registry_status in kept["registries"]}


def until_state(agent: Daemon, url: str, state: str) -> dict[str, Any]:
    """Return what an agent says of a registry, once that is in this state."""

    def look() -> dict[str, Any] | None:
        registry_status = registry_statuses(agent).get(url)
        return registry_status if registry_status and registry_status["state"] == state else None

    return until(look, f"{url}: {state}", within=SOON_SECONDS)


def nodes(registry: Daemon) -> dict[str, dict[str, Any]]:
    """Return all nodes by hostname."""
    return {node["hostname"]: node for node in registry.ask("GET", "/nodes").json()}


def until_listed(registry: Daemon, hostname: str) -> dict[str, Any]:
    """Wait for a node."""
    return until(
        lambda: nodes(registry).get(hostname), f"{hostname} is listed", within=SOON_SECONDS
    )


def until_gone(registry: Daemon, hostname: str) -> None:
    """Wait until a node is not listed."""
    until(lambda: hostname not in nodes(registry), f"{hostname} is not listed", within=SOON_SECONDS)


def change_settings(daemon: Daemon, **settings: Any) -> None:
    """Change settings in a daemon's file; restart or reload it afterwards."""
    present = yaml.safe_load(daemon.config_path.read_text())
    daemon.config_path.write_text(yaml.safe_dump(merged(present, settings)))


def metric_value(daemon: Daemon, line: str) -> float | None:
    """Return the value of a metric, named with its labels as /metrics shows it."""
    for shown in daemon.ask("GET", "/metrics").text.splitlines():
        if shown.startswith(line + " "):
            return float(shown.rpartition(" ")[2])
    return None


def heartbeats_taken(agent: Daemon, registry: Daemon) -> float:
    """Return how many heartbeats of an agent a registry has taken."""
    counted = f'outcome="taken",registry="{registry.base_url}"'
    return metric_value(agent, f"rollcall_agent_heartbeats_total{{{counted}}}") or 0
