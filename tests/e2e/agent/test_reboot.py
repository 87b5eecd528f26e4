"""A host that goes down with everything on it, and comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from dev.waiting import until
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.run.release import some_of

pytestmark = [pytest.mark.real("dockerd", "unshare", "ip"), pytest.mark.long(2)]

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1}
RUNNING, STOPPED = ("one", "two"), "stopped"
SOON_SECONDS = 90.0


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start()
        engine.build()
        yield engine


@dataclass(frozen=True)
class Host:
    """An agent with two apps that run and one that was stopped, which began at a time."""

    agent: Daemon
    dockerd: Dockerd
    stopped_began: str

    def record(self, name: str) -> dict[str, Any]:
        """Return the record of an app."""
        record: dict[str, Any] = self.agent.ask("GET", f"/v1/apps/{name}").json()
        return record

    def began(self, name: str) -> str:
        """Return when the container of an app was started last."""
        return _began(self.dockerd, self.record(name)["container_id"])

    def states(self) -> dict[str, tuple[str, str]]:
        """Return the state of each app and what it should be; nothing while the engine is away."""
        answer = self.agent.ask("GET", "/v1/apps")
        records: list[Any] = answer.json() if answer.ok else []
        return {each["name"]: (each["state"], each["desired"]) for each in records}


def _began(dockerd: Dockerd, container: str) -> str:
    with closing(dockerd.client()) as client:
        began: str = client.inspect_container(container)["State"]["StartedAt"]
        return began


@pytest.fixture(scope="module")
def host(
    dockerd: Dockerd, tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[Host]:
    """Yield a host on which all is as it should be, before each test and after it."""
    folder = tmp_path_factory.mktemp("host") / "daemons"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        agent = daemons.agent(engine=dockerd.url, apps=SETTINGS)
        for name in (*RUNNING, STOPPED):
            app = {"name": name, "image": IMAGE, "memory": 32}
            created = agent.ask("POST", "/v1/apps", json=app)
            assert created.status_code == 201, created.text
        stopped = agent.ask("PUT", f"/v1/apps/{STOPPED}/stop")
        assert stopped.ok
        yield Host(agent, dockerd, _began(dockerd, stopped.json()["container_id"]))


def check_that_all_is_as_before(host: Host) -> None:
    """Wait until what should run does; assert that what was stopped never ran."""
    wanted = dict.fromkeys(RUNNING, ("running", "running")) | {STOPPED: ("exited", "stopped")}
    until(lambda: host.states() == wanted, "the apps that should run", within=SOON_SECONDS)
    assert {host.record(name)["message"] for name in wanted} == {None}
    # By the time that an app is started that is down now, any other would be, too.
    killed, began = host.record(RUNNING[0])["container_id"], host.began(RUNNING[0])
    with closing(host.dockerd.client()) as client:
        client.kill(killed)
    until(lambda: host.began(RUNNING[0]) != began, "the start of an app", within=SOON_SECONDS)
    until(lambda: host.states() == wanted, "the apps that should run", within=SOON_SECONDS)
    with closing(host.dockerd.client()) as client:
        assert len(client.containers(all=True)) == len(wanted)
    assert host.began(STOPPED) == host.stopped_began


@pytest.mark.parametrize(
    "first", some_of(["engine", "agent"], "agent", reason="the other order takes as long")
)
def test_after_a_crash_of_the_host_what_should_run_does_and_what_was_stopped_does_not(
    host: Host, first: str
) -> None:
    agent, dockerd = host.agent, host.dockerd
    agent.kill()
    dockerd.crash_host()

    if first == "engine":
        dockerd.start()
        agent.start()
    else:
        agent.start()
        dockerd.start()

    check_that_all_is_as_before(host)


@pytest.mark.parametrize(
    "first", some_of(["engine", "agent"], "agent", reason="the other order takes as long")
)
def test_an_orderly_shutdown_of_agent_and_engine_at_once_is_nobodys_wish(
    host: Host, first: str
) -> None:
    agent, dockerd = host.agent, host.dockerd
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

    check_that_all_is_as_before(host)
