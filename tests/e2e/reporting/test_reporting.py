import os
import signal
from pathlib import Path

import pytest

from dev.waiting import until
from tests.support.daemons import Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    metric_value,
    nodes,
    run_command,
    status,
    until_gone,
    until_listed,
    until_state,
)
from tests.support.e2e.reporting import log_lines, node_settings

pytestmark = pytest.mark.real


def test_a_host_without_an_engine_registers_with_all_that_it_has_to_say(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(
        registries=[registry],
        **node_settings("Web-1.Example.COM.", labels=["service:web"], kv={"rack": "r12"}),
    )

    node = until_listed(registry, "web-1.example.com")

    port = agent.base_url.rpartition(":")[2]
    assert node["labels"] == ["service:web", f"prometheus:rollcall:port:{port}"]
    assert node["kv"].keys() == {
        "rack",
        "agent.id",
        "agent.instance",
        "agent.url",
        "agent.version",
        "host.os",
        "host.kernel",
        "host.arch",
        "host.cpus",
        "host.memory_mib",
        "docker.state",
        "apps.total",
        "apps.running",
        "apps.stopped",
        "apps.unhealthy",
    }
    assert node["kv"]["docker.state"] == "unreachable"
    assert node["kv"]["agent.url"] == f"http://web-1.example.com:{port}"
    targets = registry.ask("GET", "/prometheus/rollcall?format=http_sd").json()
    assert targets[0]["targets"] == [f"web-1.example.com:{port}"]


def test_labels_in_files_are_reported_at_the_next_heartbeat_and_those_in_settings_at_a_hangup(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")
    folder = agent.config_path.parent / "labels.d"

    folder.mkdir()
    (folder / "site").write_text("# where\nsite:north\n")
    until(
        lambda: "site:north" in nodes(registry)["web-1"]["labels"], "the file", within=SOON_SECONDS
    )
    change_settings(agent, node={"labels": ["service:db"]})
    os.kill(agent.pid, signal.SIGHUP)
    until(
        lambda: "service:db" in nodes(registry)["web-1"]["labels"],
        "the setting",
        within=SOON_SECONDS,
    )
    change_settings(agent, node={"labels": ["x" * 1025]})
    os.kill(agent.pid, signal.SIGHUP)
    until(lambda: log_lines(agent, "not reloaded"), "the rejection", within=SOON_SECONDS)
    assert "service:db" in nodes(registry)["web-1"]["labels"]


def test_a_registry_that_is_away_costs_two_lines_and_is_reported_all_when_it_is_back(
    daemons: Daemons,
) -> None:
    registry, other = daemons.registry(), daemons.registry()
    agent = daemons.agent(registries=[registry, other], **node_settings("web-1"))
    until_listed(registry, "web-1")
    until_listed(other, "web-1")
    registry.kill()
    until_state(agent, registry.base_url, "unreachable")
    failed = (
        f'rollcall_agent_heartbeats_total{{outcome="unreachable",registry="{registry.base_url}"}}'
    )
    until(
        lambda: (metric_value(agent, failed) or 0) >= 4, "some more attempts", within=SOON_SECONDS
    )

    folder = agent.config_path.parent / "labels.d"
    folder.mkdir()
    (folder / "site").write_text("site:north\n")
    until(lambda: "site:north" in nodes(other)["web-1"]["labels"], "the other", within=SOON_SECONDS)
    assert agent.ask("GET", "/v1/apps").status_code == 503
    assert "engine" in agent.ask("GET", "/v1/apps").json()["message"]
    registry.start()

    until(
        lambda: "site:north" in nodes(registry)["web-1"]["labels"],
        "its return",
        within=SOON_SECONDS,
    )
    until_state(agent, registry.base_url, "taken")
    about = [
        line
        for line in log_lines(agent, registry.base_url)
        if "heartbeat" in line or "back" in line
    ]
    assert len(about) == 2, agent.log()
    assert "registry back" in about[1]
    assert "Traceback" not in agent.log()


def test_two_hosts_with_one_name_are_distinguished_until_the_first_is_stale(
    daemons: Daemons,
) -> None:
    registry = daemons.registry(nodes={"stale_after_seconds": 3})
    first = daemons.agent(registries=[registry], **node_settings("web-1", labels=["who:first"]))
    until_listed(registry, "web-1")
    second = daemons.agent(registries=[registry], **node_settings("web-1", labels=["who:second"]))

    rejected = until_state(second, registry.base_url, "clone_rejected")
    for agent in (first, second):
        assert f"'{status(agent)['agent_id'][:8]}'..." in rejected["reason"]
    assert "127.0.0.1" in rejected["reason"]
    up = f'rollcall_agent_registry_up{{registry="{registry.base_url}"}}'
    assert metric_value(first, up) == 1
    assert metric_value(second, up) == 0
    assert "who:first" in nodes(registry)["web-1"]["labels"]

    first.kill()
    until_state(second, registry.base_url, "taken")
    assert "who:second" in nodes(registry)["web-1"]["labels"]


def test_status_shows_what_is_sent_to_whom_and_why_not(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1", labels=["service:web"]))
    until_state(agent, registry.base_url, "taken")

    good = run_command("rollcall-agent", agent, "status")
    kv = nodes(registry)["web-1"]["kv"]
    assert good.returncode == 0
    identity = f"identity    {kv['agent.id']}"
    for words in ("web-1", identity, f"pid {agent.pid}", "service:web", "apps.total"):
        assert words in good.stdout
    assert status(agent)["heartbeat"]["kv"] == kv
    assert f"  {registry.base_url}\n    taken " in good.stdout

    registry.terminate()
    until_state(agent, registry.base_url, "unreachable")
    bad = run_command("rollcall-agent", agent, "status")
    assert bad.returncode == 1
    assert "NOT TAKEN (unreachable)" in bad.stdout
    assert "last taken" in bad.stdout

    agent.terminate()
    ended = run_command("rollcall-agent", agent, "status")
    assert ended.returncode == 1
    assert "not running" in ended.stdout


def test_a_host_that_deregisters_stays_out_until_its_agent_is_started_again(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")

    left = run_command("rollcall-agent", agent, "deregister")

    assert left.returncode == 0
    assert f"{registry.base_url}: web-1: taken out" in left.stdout
    until(
        lambda: log_lines(agent, "no heartbeats until the agent is restarted"),
        "its next heartbeat",
        within=SOON_SECONDS,
    )
    assert nodes(registry) == {}
    assert status(agent)["left"]
    again = run_command("rollcall-agent", agent, "deregister")
    assert again.returncode == 0
    assert "was not listed" in again.stdout
    agent.restart()
    until_listed(registry, "web-1")


def test_deregister_says_what_it_could_not_do(daemons: Daemons) -> None:
    registry, away = daemons.registry(), daemons.registry()
    agent = daemons.agent(registries=[registry, away], **node_settings("web-1"))
    until_listed(registry, "web-1")
    away.terminate()

    left = run_command("rollcall-agent", agent, "deregister")

    assert left.returncode == 1
    assert f"{registry.base_url}: web-1: taken out" in left.stdout
    assert f"{away.base_url}: web-1: NOT taken out" in left.stdout


def test_a_host_does_not_take_out_anothers_name_unless_it_is_forced_to(daemons: Daemons) -> None:
    registry = daemons.registry()
    daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")
    clone = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_state(clone, registry.base_url, "clone_rejected")

    gentle = run_command("rollcall-agent", clone, "deregister")
    assert gentle.returncode == 1
    assert "left alone" in gentle.stdout
    assert "web-1" in nodes(registry)

    assert run_command("rollcall-agent", clone, "deregister", "--force").returncode == 0


def test_a_renamed_host_leaves_no_ghost(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")

    agent.terminate()
    change_settings(agent, node={"hostname": "web-2"})
    agent.start()

    until_listed(registry, "web-2")
    until_gone(registry, "web-1")


def test_a_host_that_is_stopped_stays_listed(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], **node_settings("web-1"))
    until_listed(registry, "web-1")

    assert agent.terminate() == 0

    assert "web-1" in nodes(registry)


def test_a_second_agent_with_the_same_state_does_not_start(
    daemons: Daemons, tmp_path: Path
) -> None:
    agent = daemons.agent()
    second = tmp_path / "second.yml"
    second.write_text(agent.config_path.read_text().replace("listen: ", "listen: 127.0.0.1:0 #"))
    (tmp_path / "ops.key").write_text(agent.key)

    started = run_command("rollcall-agent", second)

    assert started.returncode == 1
    assert f"in use by another rollcall-agent (pid {agent.pid})" in started.stderr


def test_a_key_that_travels_in_the_clear_is_warned_about_at_the_start(daemons: Daemons) -> None:
    registry = daemons.registry()
    elsewhere = "http://registry.invalid:7655"
    agent = daemons.agent(
        registries=[registry],
        node={"hostname": "web-1"},
    )
    assert not log_lines(agent, "travels unencrypted")
    agent.terminate()
    change_settings(agent, registries=[{"url": elsewhere, "key_file": str(registry.key_path)}])
    agent.start()

    assert len(log_lines(agent, "travels unencrypted")) == 1
    assert elsewhere in log_lines(agent, "travels unencrypted")[0]
