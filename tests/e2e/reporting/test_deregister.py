"""`rollcall-agent deregister`, whatever the agent and its state are like."""

import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from agent.state.lock import Deregistration
from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import (
    SOON_SECONDS,
    change_settings,
    node_key,
    nodes,
    run_command,
    status,
    until_listed,
    until_state,
)
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.registry.fake_servers import running_servers, silent, tcp_server
from tests.support.requirements import need_root

pytestmark = pytest.mark.real


def holds_lock(agent: Daemon) -> bool:
    """Return whether an agent holds the lock under which it sends a heartbeat."""
    file = (agent.config_path.parent / "presence.lock").stat()
    return any(
        "FLOCK" in line and f" {agent.pid} " in line and f":{file.st_ino} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


def stopped_while_holding_lock(agent: Daemon) -> bool:
    """Stop an agent if it is sending a heartbeat; return whether it was."""
    if holds_lock(agent):
        os.kill(agent.pid, signal.SIGSTOP)
        if holds_lock(agent):
            return True
        os.kill(agent.pid, signal.SIGCONT)
    return False


def test_an_agent_that_is_stopped_while_it_sends_is_not_waited_for_without_end(
    daemons: Daemons,
) -> None:
    registry = daemons.registry()
    with running_servers([tcp_server(silent)]) as (url,):
        agent = daemons.agent(registries=[registry], node={"hostname": "web-1"})
        until_listed(registry, "web-1")
        agent.terminate()
        lines = yaml.safe_load(agent.config_path.read_text())["registries"]
        change_settings(agent, registries=[*lines, {**lines[0], "url": url}], heartbeat_seconds=2)
        agent.start()
        until(
            lambda: stopped_while_holding_lock(agent),
            "the silent registry is reported",
            within=SOON_SECONDS,
        )
        try:
            left = run_command("rollcall-agent", agent, "deregister", "--wait", "0.5")
        finally:
            os.kill(agent.pid, signal.SIGCONT)

        assert left.returncode == 1
        assert f"{registry.base_url}: web-1: taken out" in left.stdout
        assert f"The agent (pid {agent.pid}) has not ended" in left.stdout
        assert status(agent)["left"]


def test_a_full_disk_keeps_no_registry_from_being_reported(
    daemons: Daemons, tmp_path: Path
) -> None:
    need_root()
    first, second = daemons.registry(), daemons.registry()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        agent = daemons.agent(
            registries=[first, second],
            node={"hostname": "web-1"},
            store=f"sqlite:///{folder}/agent.db",
        )
        until_listed(first, "web-1")
        until_listed(second, "web-1")
        agent.terminate()
        fill_disk(folder)

        left = run_command("rollcall-agent", agent, "deregister")

    for registry in (first, second):
        assert f"{registry.base_url}: web-1: taken out" in left.stdout
        assert nodes(registry) == {}
    assert "No space left on device" in left.stdout
    assert (left.returncode, left.stderr) == (0, "")


def test_where_the_state_cannot_be_written_nothing_is_taken_out(
    daemons: Daemons, tmp_path: Path
) -> None:
    need_root()
    registry = daemons.registry()
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        agent = daemons.agent(
            registries=[registry],
            node={"hostname": "web-1"},
            store=f"sqlite:///{folder}/agent.db",
        )
        until_listed(registry, "web-1")
        agent.terminate()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)

        left = run_command("rollcall-agent", agent, "deregister")

    assert left.returncode == 1
    assert left.stderr == (
        f"rollcall-agent: {folder}/left cannot be written: Read-only file system; "
        "nothing was taken out\n"
    )
    assert nodes(registry).keys() == {"web-1"}


def test_a_host_that_was_off_while_the_secret_changed_leaves_with_its_new_key(
    daemons: Daemons,
) -> None:
    old, new = {"value": "the-old-secret-of-keys"}, {"value": "the-new-secret-of-keys"}
    registry = daemons.registry(node_secret=old)
    agent = daemons.agent(node={"hostname": "web-1"})
    agent.terminate()
    key = agent.config_path.parent / "node.key"
    key.write_text(node_key(registry, "web-1"))
    change_settings(agent, registries=[{"url": registry.base_url, "key_file": "node.key"}])
    agent.start()
    until_state(agent, registry.base_url, "taken")
    agent.terminate()

    change_settings(registry, node_secret=new)
    registry.restart()
    key.write_text(node_key(registry, "web-1"))
    left = run_command("rollcall-agent", agent, "deregister")

    assert left.returncode == 0, left.stdout
    assert nodes(registry) == {}


def test_a_host_that_was_renamed_leaves_with_the_name_that_it_had(daemons: Daemons) -> None:
    registry = daemons.registry(node_secret={"value": "a-secret-of-the-fleet"})
    agent = daemons.agent(node={"hostname": "web-1"})
    agent.terminate()
    key = agent.config_path.parent / "node.key"
    key.write_text(node_key(registry, "web-1"))
    change_settings(agent, registries=[{"url": registry.base_url, "key_file": "node.key"}])
    agent.start()
    until_listed(registry, "web-1")
    agent.terminate()

    key.write_text(node_key(registry, "web-2"))
    change_settings(agent, node={"hostname": "web-2"})
    left = run_command("rollcall-agent", agent, "deregister")

    assert left.stdout == (
        f"{registry.base_url}: web-2: was not listed\n{registry.base_url}: web-1: taken out\n"
    )
    assert left.returncode == 0
    assert nodes(registry) == {}


def test_a_url_with_a_path_that_the_registry_lacks_takes_nothing_out(daemons: Daemons) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"})
    until_listed(registry, "web-1")
    agent.terminate()
    [line] = yaml.safe_load(agent.config_path.read_text())["registries"]
    change_settings(agent, registries=[{**line, "url": f"{registry.base_url}/rollcall"}])

    left = run_command("rollcall-agent", agent, "deregister")

    assert left.returncode == 1
    assert "web-1: NOT taken out: 404: there is no such path" in left.stdout
    assert nodes(registry).keys() == {"web-1"}


def test_a_host_that_leaves_while_its_agent_still_starts_stays_out(
    daemons: Daemons, tmp_path: Path
) -> None:
    registry = daemons.registry()
    agent = daemons.agent(registries=[registry], node={"hostname": "web-1"}, heartbeat_seconds=1)
    until_listed(registry, "web-1")
    agent.terminate()
    assert run_command("rollcall-agent", agent, "deregister").returncode == 0
    state = agent.config_path.parent
    with socket.socket(socket.AF_UNIX) as engine, ThreadPoolExecutor() as pool:
        engine.bind(str(tmp_path / "engine"))
        engine.listen()  # and nobody answers: the agent waits a while for it
        change_settings(agent, docker={"url": f"unix://{tmp_path}/engine"})
        starting = pool.submit(agent.start)
        until(lambda: not (state / "left").exists(), "it has begun to start", within=SOON_SECONDS)
        assert "listening" not in agent.log().rpartition("stopping")[2]
        assert Deregistration(directory=state).begin(within_seconds=SOON_SECONDS)
        starting.result()
        until(
            lambda: "deregistered: no heartbeats" in agent.log(),
            "its silence",
            within=SOON_SECONDS,
        )

        assert nodes(registry) == {}
        agent.kill()
