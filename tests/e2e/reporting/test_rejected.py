"""Heartbeats that a registry rejects by its rules: the agent says so, and goes on in time."""

import shutil

import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import SOON_SECONDS, change_settings, nodes, until_listed
from tests.support.e2e.commands import until_state as until_registry_state
from tests.support.e2e.reporting import node_settings

pytestmark = pytest.mark.real


def instance(registry: Daemon) -> str:
    found: str = nodes(registry)["web-1"]["kv"]["agent.instance"]
    return found


def test_a_machine_that_was_cloned_with_its_state_is_rejected_and_a_restart_is_not(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    first = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")
    instances = {instance(registry)}
    for _ in range(2):
        first.restart()
        until(lambda: instance(registry) not in instances, "a new instance", within=SOON_SECONDS)
        instances.add(instance(registry))
    until_registry_state(first, registry.base_url, "taken")

    clone = daemons.agent(registries=[registry], **node_settings("web-2"))
    clone.terminate()
    for file in ("identity.json", "store.db"):
        shutil.copy(first.config_path.with_name(file), clone.config_path.with_name(file))
    change_settings(clone, node={"hostname": "web-1"})
    clone.start()

    rejected = until_registry_state(first, registry.base_url, "clone_rejected")
    assert "posts from 127.0.0.1" in rejected["reason"]
    until_registry_state(clone, registry.base_url, "taken")
    assert instance(registry) not in instances


def test_a_host_that_changes_too_often_waits_and_says_so(daemons: Daemons) -> None:
    registry = daemons.registry(nodes={"changes_per_minute": 1})
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")

    folder = agent.config_path.parent / "labels.d"
    folder.mkdir()
    (folder / "site").write_text("site:north\n")

    rejected = until_registry_state(agent, registry.base_url, "busy")
    assert "429: web-1 changes more often than 1 times a minute" in rejected["reason"]
    assert "site:north" not in nodes(registry)["web-1"]["labels"]
    assert "429: web-1 changes more often" in agent.log()
