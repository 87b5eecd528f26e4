"""`rollcall-agent adopt`: the apps of an agent that is gone go on under another, and no others."""

import secrets
import shlex
from collections.abc import Iterator

import docker
import pytest

from dev.waiting import until
from tests.support.daemons import Daemon, Daemons
from tests.support.e2e.commands import SOON_SECONDS, run_command, status

pytestmark = pytest.mark.real


@pytest.fixture
def app(docker_client: docker.APIClient) -> Iterator[str]:
    """Yield the name of an app, and remove what is left of it."""
    name = f"adopted-{secrets.token_hex(4)}"
    yield name
    for container in docker_client.containers(all=True, filters={"label": f"rollcall.app={name}"}):
        docker_client.remove_container(container["Id"], force=True)
    labels = {"label": [f"rollcall.app={name}"]}
    for volume in docker_client.volumes(filters=labels)["Volumes"] or ():
        docker_client.remove_volume(volume["Name"], force=True)


def identity(agent: Daemon) -> str:
    found: str = status(agent)["agent_id"]
    return found


def state(agent: Daemon, app: str) -> str | None:
    answer = agent.ask("GET", f"/v1/apps/{app}")
    return answer.json()["state"] if answer.ok else None


def test_the_apps_of_an_agent_that_is_gone_are_taken_over_by_an_operators_word(
    daemons: Daemons, engine_url: str, busybox_image: str, app: str, docker_client: docker.APIClient
) -> None:
    first = daemons.agent(engine=engine_url)
    record = first.ask("POST", "/v1/apps", json={"name": app, "image": busybox_image}).json()
    second = daemons.agent(engine=engine_url)
    whose = identity(first)

    shown = run_command("rollcall-agent", second, "status").stdout
    assert f"  container {app} of app {app}, agent {whose}" in shown
    rejected = run_command("rollcall-agent", second, "adopt", whose)
    assert rejected.returncode == 1
    assert f"{whose}: NOT adopted: its agent lives, with {app}" in rejected.stdout
    assert (state(first, app), state(second, app)) == ("running", None)

    first.kill()
    adopting_nobody_lists_what_there_is(second, whose, app)
    adopted = run_command("rollcall-agent", second, "adopt", whose)
    assert (adopted.returncode, adopted.stderr) == (0, "")
    assert f"{whose}: adopted: {app}" in adopted.stdout
    until(lambda: state(second, app) == "running", "the app is adopted", within=SOON_SECONDS)

    first.start()
    assert state(first, app) == "missing"
    stopped = first.ask("PUT", f"/v1/apps/{app}/stop")
    assert stopped.status_code == 409
    assert identity(second) in stopped.json()["message"]
    assert docker_client.inspect_container(record["container_id"])["State"]["Running"]
    assert second.ask("DELETE", f"/v1/apps/{app}").ok
    (mark,) = docker_client.volumes(filters={"label": [f"rollcall.adopted={whose}"]})["Volumes"]
    docker_client.remove_volume(mark["Name"])


def test_an_identity_that_is_no_word_of_a_shell_is_listed_so_that_nothing_else_is_run(
    daemons: Daemons, engine_url: str, app: str, docker_client: docker.APIClient
) -> None:
    identities = ["x; touch y", "it's $(id)", "a\nb"]
    for number, whose in enumerate(identities):
        labels = {"rollcall.app": app, "rollcall.agent": whose}
        docker_client.create_volume(f"volume-{number}-of-{app}", labels=labels)
    agent = daemons.agent(engine=engine_url)

    listed = run_command("rollcall-agent", agent, "adopt").stderr.splitlines()

    lines = [each for each in listed if each.endswith(f"# {app}")]
    words = sorted(shlex.split(line, comments=True)[-2:] for line in lines)
    expected = (["adopt", whose] if whose.isprintable() else [] for whose in identities)
    assert words == sorted(expected)


def adopting_nobody_lists_what_there_is(agent: Daemon, whose: str, app: str) -> None:
    listed = run_command("rollcall-agent", agent, "adopt")
    assert (listed.returncode, listed.stdout) == (2, "")
    command = f"rollcall-agent --config {agent.config_path} adopt"
    assert f"  {command} {whose}    # {app}\n" in listed.stderr
    assert f"  {command} --all    # all others\n" in listed.stderr
    both = run_command("rollcall-agent", agent, "adopt", "--all", whose)
    assert (both.returncode, "not allowed with" in both.stderr) == (2, True)
    shown = run_command("rollcall-agent", agent, "status").stdout
    assert f"  container {app} of app {app}, agent {whose}" in shown


def test_an_agent_that_has_lost_all_its_state_gets_its_apps_back(
    daemons: Daemons, engine_url: str, busybox_image: str, app: str, docker_client: docker.APIClient
) -> None:
    agent = daemons.agent(engine=engine_url)
    record = agent.ask("POST", "/v1/apps", json={"name": app, "image": busybox_image}).json()
    whose = identity(agent)
    agent.terminate()
    for pattern in ("identity.json", "store.db*"):
        for file in agent.config_path.parent.glob(pattern):
            file.unlink()

    nobody = run_command("rollcall-agent", agent, "adopt", "nobody")
    assert (nobody.returncode, "no container or volume" in nobody.stdout) == (1, True)
    assert run_command("rollcall-agent", agent, "adopt", whose).returncode == 0
    agent.start()

    until(lambda: state(agent, app) == "running", "the app is adopted", within=SOON_SECONDS)
    found = agent.ask("GET", f"/v1/apps/{app}").json()
    assert (found["container_id"], found["volumes"]) == (record["container_id"], record["volumes"])
    assert agent.ask("DELETE", f"/v1/apps/{app}").ok
    (mark,) = docker_client.volumes(filters={"label": [f"rollcall.adopted={whose}"]})["Volumes"]
    docker_client.remove_volume(mark["Name"])
