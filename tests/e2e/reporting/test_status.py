"""`rollcall-agent status` when something is wrong."""

import json
import os
import signal
from uuid import uuid4

import pytest

from agent.state.lock import state_lock
from dev.waiting import until
from tests.support.daemons import Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    metric_value,
    nodes,
    run_command,
    status,
    until_listed,
    until_state,
)

pytestmark = pytest.mark.real


def test_an_agent_that_is_stuck_is_not_taken_for_one_that_reports(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"}, heartbeat_seconds=2)
    until_listed(registry, "web-1")
    until_state(agent, registry.base_url, "taken")

    assert run_command("rollcall-agent", agent, "status").returncode == 0
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        until(
            lambda: run_command("rollcall-agent", agent, "status").returncode == 1,
            "status shows",
            within=SOON_SECONDS,
        )
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def test_the_instance_is_that_of_the_agent_that_runs_and_of_none_once_it_has_ended(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"})
    first = until_listed(registry, "web-1")["kv"]["agent.instance"]
    assert status(agent)["heartbeat"]["kv"]["agent.instance"] == first

    agent.terminate()
    ended = status(agent)
    agent.start()

    # The next start draws another one, so this is none that the agent would report.
    assert "agent.instance" not in ended["heartbeat"]["kv"]
    assert ended["heartbeat"]["kv"]["agent.id"] == ended["agent_id"]
    until(
        lambda: nodes(registry)["web-1"]["kv"]["agent.instance"] != first,
        "the heartbeat of the next instance",
        within=SOON_SECONDS,
    )
    second = nodes(registry)["web-1"]["kv"]["agent.instance"]
    assert status(agent)["heartbeat"]["kv"]["agent.instance"] == second


def test_an_agent_that_starts_is_not_shown_with_the_instance_and_the_start_of_the_run_before(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"})
    until_listed(registry, "web-1")
    until_state(agent, registry.base_url, "taken")
    agent.terminate()

    # As an agent does that has just begun to start.
    with state_lock(agent.config_path.parent, instance=uuid4().hex):
        starting = status(agent)
        shown = run_command("rollcall-agent", agent, "status").stdout

    assert (starting["pid"], starting["started_at"]) == (os.getpid(), None)
    assert "agent.instance" not in starting["heartbeat"]["kv"]
    assert f"agent       starting, pid {os.getpid()}\n" in shown


def test_what_cannot_be_sent_is_reported_with_its_place(daemons: Daemons) -> None:
    agent = daemons.agent()
    folder = agent.config_path.parent / "labels.d"
    folder.mkdir()
    (folder / "site").write_text(f"site:north\nnote:{'x' * 1024}\n")

    shown = run_command("rollcall-agent", agent, "status").stdout

    assert "  site:north\n" in shown
    assert f"left out    {folder}/site, line 2: a label has 1 to 1024 characters" in shown


def test_what_does_not_fit_is_reported_everywhere(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"})
    until_listed(registry, "web-1")
    folder = agent.config_path.parent / "labels.d"
    folder.mkdir()
    (folder / "many").write_text("".join(f"n:{number}\n" for number in range(5000)))
    os.kill(agent.pid, signal.SIGHUP)

    until(lambda: len(nodes(registry)["web-1"]["labels"]) == 4096, "labels", within=SOON_SECONDS)

    assert nodes(registry)["web-1"]["kv"]["labels.left_out"] == "905"
    assert metric_value(agent, "rollcall_agent_labels_left_out") == 905
    shown = run_command("rollcall-agent", agent, "status").stdout
    assert "left out    labels of settings, of files or of names of apps, beyond" in shown


def test_settings_with_a_mistake_do_not_hide_what_became_of_the_heartbeats(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"}, heartbeat_seconds=1)
    until_state(agent, registry.base_url, "taken")
    registry.key_path.unlink()
    until_state(agent, registry.base_url, "bad_file")
    pid = agent.pid
    running = run_command("rollcall-agent", agent, "status")
    view = json.loads(run_command("rollcall-agent", agent, "status", "--json").stdout)
    agent.terminate()
    change_settings(agent, listen=7)  # a second mistake, and of another kind
    ended = run_command("rollcall-agent", agent, "status").stdout

    assert (running.returncode, len(running.stderr.splitlines())) == (2, 1)
    assert f"registries[0].key_file: {registry.key_path} cannot be read" in running.stderr
    assert f"agent       running, pid {pid}, " in running.stdout
    assert f"  {registry.base_url}\n    NOT TAKEN (bad_file): " in running.stdout
    assert "    last taken " in running.stdout
    assert [each["state"] for each in view["registries"]] == ["bad_file"]
    assert (view["hostname"], view["heartbeat"]) == (None, None)
    assert view["mistakes"] == [line.partition(": ")[2] for line in running.stderr.splitlines()]
    assert "agent       not running; this is what it last knew\n" in ended
    assert "    NOT TAKEN (bad_file): " in ended


def test_a_state_that_cannot_be_read_is_named(daemons: Daemons) -> None:
    agent = daemons.agent()
    agent.terminate()
    state = agent.config_path.parent
    (state / "status.json").unlink()
    (state / "status.json").mkdir()

    shown = run_command("rollcall-agent", agent, "status")

    assert shown.returncode == 1
    assert shown.stderr == f"rollcall-agent: {state}/status.json: Is a directory\n"
