"""One host and several registries, of which one fails for a while and one has another key."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    metric_value,
    nodes,
    run_command,
    until_listed,
    until_state,
)

pytestmark = pytest.mark.real


TAKEN, HEARTBEAT_FAILED, REGISTRY_BACK = "registered", "heartbeat failed", "registry back"


class ThreeRegistries:
    """An agent and three registries: one up all the time, one that goes, one with another key."""

    def __init__(self, daemons: Daemons) -> None:
        self.steady, self.moving, self.strict = [daemons.registry() for _ in range(3)]
        self.agent = daemons.agent(node={"hostname": "web-1"}, heartbeat_seconds=2)
        self.agent.terminate()
        self.key = self.agent.config_path.parent / "node.key"
        self.key.write_text("a-key-that-nobody-knows")
        lines = [
            {"url": self.steady.base_url, "key_file": str(self.steady.key_path)},
            {"url": self.moving.base_url, "key_file": str(self.moving.key_path)},
            {"url": self.strict.base_url, "key_file": "node.key"},
        ]
        change_settings(self.agent, registries=lines)
        self.agent.start()

    def relabel(self, label: str) -> None:
        """Replace the host's label."""
        folder = self.agent.config_path.parent / "labels.d"
        folder.mkdir(exist_ok=True)
        (folder / "site").write_text(f"{label}\n")

    def events(self, registry: Daemon) -> list[str]:
        """Return what the agent logged about a registry."""
        reported = [line for line in self.agent.log().splitlines() if registry.base_url in line]
        return [
            next(event for event in (TAKEN, HEARTBEAT_FAILED, REGISTRY_BACK) if event in line)
            for line in reported
        ]

    def counted(self, registry: Daemon, outcome: str) -> float | None:
        """Return how many heartbeats to a registry had this outcome."""
        labels = f'outcome="{outcome}",registry="{registry.base_url}"'
        return metric_value(self.agent, f"rollcall_agent_heartbeats_total{{{labels}}}")


def until_reported(registry: Daemon, label: str) -> None:
    """Wait until a registry knows the host with a label."""
    until(
        lambda: label in nodes(registry).get("web-1", {"labels": []})["labels"],
        f"{registry.base_url} knows {label}",
        within=SOON_SECONDS,
    )


@contextmanager
def stopped(registry: Daemon) -> Iterator[None]:
    """Run a registry that accepts connections and never answers."""
    os.kill(registry.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(registry.pid, signal.SIGCONT)


def test_the_failure_of_one_registry_does_not_affect_the_others(daemons: Daemons) -> None:
    fleet = ThreeRegistries(daemons)
    agent, steady, moving, strict = fleet.agent, fleet.steady, fleet.moving, fleet.strict
    until_listed(steady, "web-1")
    until_listed(moving, "web-1")
    until_state(agent, strict.base_url, "wrong_key")

    moving.kill()
    until_state(agent, moving.base_url, "unreachable")
    fleet.relabel("site:north")
    until_reported(steady, "site:north")
    moving.start()
    until_reported(moving, "site:north")
    with stopped(moving):
        until_state(agent, moving.base_url, "slow")
        fleet.relabel("site:south")
        until_reported(steady, "site:south")
    until_reported(moving, "site:south")
    until_state(agent, moving.base_url, "taken")

    assert nodes(strict) == {}
    shown = run_command("rollcall-agent", agent, "status")
    assert shown.returncode == 1
    assert f"{steady.base_url}\n    taken" in shown.stdout
    assert f"{strict.base_url}\n    NOT TAKEN (wrong_key)" in shown.stdout
    fleet.key.write_text(strict.key)
    until_reported(strict, "site:south")
    until_state(agent, strict.base_url, "taken")
    assert run_command("rollcall-agent", agent, "status").returncode == 0
    assert fleet.events(steady) == [TAKEN]
    assert fleet.events(moving) == [
        TAKEN,
        HEARTBEAT_FAILED,
        REGISTRY_BACK,
        HEARTBEAT_FAILED,
        REGISTRY_BACK,
    ]
    assert fleet.events(strict) == [HEARTBEAT_FAILED, REGISTRY_BACK]
    assert [fleet.counted(steady, kind) for kind in ("unreachable", "slow", "wrong_key")] == [0] * 3
