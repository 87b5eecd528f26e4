"""A host that goes down with everything on it, and comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from dev.waiting import until
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.daemons import Daemon, Daemons

pytestmark = [pytest.mark.real("dockerd", "unshare", "ip"), pytest.mark.long(2)]

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1}
RUNNING, STOPPED = ("one", "two"), "stopped"
SOON_SECONDS = 90.0


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start()
        engine.build()
        yield engine


@pytest.fixture
def agent(dockerd: Dockerd, daemons: Daemons) -> Daemon:
    """Return an agent with two apps that run and one that was stopped."""
    agent = daemons.agent(engine=dockerd.url, apps=SETTINGS)
    for name in (*RUNNING, STOPPED):
        created = agent.ask("POST", "/v1/apps", json={"name": name, "image": IMAGE, "memory": 32})
        assert created.status_code == 201, created.text
    assert agent.ask("PUT", f"/v1/apps/{STOPPED}/stop").ok
    return agent


def states(agent: Daemon) -> dict[str, tuple[str, str]]:
    """Return the state of each app and what it should be; nothing while the engine is away."""
    answer = agent.ask("GET", "/v1/apps")
    records: list[Any] = answer.json() if answer.ok else []
    return {each["name"]: (each["state"], each["desired"]) for each in records}


def check_that_all_is_as_before(agent: Daemon, dockerd: Dockerd) -> None:
    """Wait until what should run does; assert that what was stopped never ran."""
    wanted = dict.fromkeys(RUNNING, ("running", "running")) | {STOPPED: ("exited", "stopped")}
    until(lambda: states(agent) == wanted, "the apps that should run", within=SOON_SECONDS)
    with closing(dockerd.client()) as client:
        records = {name: agent.ask("GET", f"/v1/apps/{name}").json() for name in wanted}
        assert {each["message"] for each in records.values()} == {None}
        assert len(client.containers(all=True)) == len(wanted)
        seen = client.inspect_container(records[STOPPED]["container_id"])["State"]
        assert seen["StartedAt"] < seen["FinishedAt"]
    # By the time that an app is started that is down now, any other would be, too.
    with closing(dockerd.client()) as client:
        client.kill(records[RUNNING[0]]["container_id"])
    until(lambda: states(agent) != wanted, "the end of an app", within=SOON_SECONDS)
    until(lambda: states(agent) == wanted, "its start", within=SOON_SECONDS)


@pytest.mark.parametrize("first", ["engine", "agent"])
def test_after_a_crash_of_the_host_what_should_run_does_and_what_was_stopped_does_not(
    agent: Daemon, dockerd: Dockerd, first: str
) -> None:
    agent.kill()
    dockerd.crash_host()

    if first == "engine":
        dockerd.start()
        agent.start()
    else:
        agent.start()
        dockerd.start()

    check_that_all_is_as_before(agent, dockerd)


@pytest.mark.parametrize("first", ["engine", "agent"])
def test_an_orderly_shutdown_of_agent_and_engine_at_once_is_nobodys_wish(
    agent: Daemon, dockerd: Dockerd, first: str
) -> None:
    with ThreadPoolExecutor() as pool:
        agent_end, engine_end = pool.submit(agent.terminate), pool.submit(dockerd.stop)
        assert agent_end.result() == 0
        engine_end.result()

    if first == "engine":
        dockerd.start()
        agent.start()
    else:
        agent.start()
        dockerd.start()

    check_that_all_is_as_before(agent, dockerd)
