"""A host as an agent of each recorded schema left it, and as one of the present schema does."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from agent.state.store import SCHEMA_VERSION
from dev.waiting import until
from tests.support.agent.containers import run_in_container
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.agent.recorded.earlier_host import RECORDED, EarlierHost
from tests.support.agent.recorded.earlier_program import unpack_earlier_program
from tests.support.agent.recorded.host_recorder import record_host
from tests.support.daemons import Daemon, Daemons, FreePort

pytestmark = [
    pytest.mark.real("dockerd", "unshare", "ip"),
    pytest.mark.long(1),
    pytest.mark.release("upgrades from earlier states, each with a host of its own"),
]

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1}
FIRST_SCHEMA = 8
SCHEMAS = [f"schema_{version}" for version in range(FIRST_SCHEMA, SCHEMA_VERSION + 1)]
NOW = "recorded now"
RUNNING, DOWN = ("shop", "web"), ("by-hand", "stopped")
SOON_SECONDS = 60.0


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start()
        engine.build()
        yield engine


@pytest.fixture
def client(dockerd: Dockerd) -> Iterator[docker.APIClient]:
    """Yield the engine's client."""
    with closing(dockerd.client()) as client:
        yield client


@pytest.fixture(params=[*SCHEMAS, NOW])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the folder of a recorded host, of each schema from the first that was recorded."""
    if request.param != NOW:
        return RECORDED / str(request.param)
    asyncio.run(record_host(tmp_path / "recorded"))
    return tmp_path / "recorded"


@pytest.fixture
def host(recorded: Path, client: docker.APIClient, tmp_path: Path) -> EarlierHost:
    """Return a host on which two apps run, one was stopped, and a person has stopped another."""
    host = EarlierHost(recorded, client, tmp_path / "state")
    host.make()
    for container in host.containers.values():
        client.start(container)
    for name in RUNNING:
        for path in mounts(client, host.containers[name]):
            write(client, host.containers[name], path)
    for name in DOWN:
        client.stop(host.containers[name], timeout=1)
    return host


@pytest.fixture
def agent(host: EarlierHost, dockerd: Dockerd, daemons: Daemons) -> Daemon:
    """Return today's agent, on the state that was recorded, once it has looked at the apps."""
    agent = daemons.agent(engine=dockerd.url, apps=SETTINGS, store=f"sqlite:///{host.database}")
    until_found(agent)
    return agent


def until_found(agent: Daemon) -> None:
    """Wait until the agent has found its apps."""
    until(lambda: agent.ask("GET", "/v1/apps").ok, "the apps", within=SOON_SECONDS)


def ask(agent: Daemon, method: str, path: str = "", body: Any = None) -> Any:
    """Send a request for apps that must succeed; return the content of the answer."""
    answer = agent.ask(method, f"/v1/apps{path}", json=body)
    assert answer.ok, answer.text
    return answer.json()


def mounts(client: docker.APIClient, container: str) -> dict[str, str]:
    """Return the volumes of a container, by path."""
    seen = client.inspect_container(container)["Mounts"]
    return {mount["Destination"]: mount["Name"] for mount in seen}


def write(client: docker.APIClient, container: str, path: str) -> None:
    """Write a file that says where it is."""
    run_in_container(client, {"container_id": container}, f"echo {path} > {path}/file")


def started_at(client: docker.APIClient, container: str) -> str:
    return str(client.inspect_container(container)["State"]["StartedAt"])


def volumes(client: docker.APIClient) -> set[str]:
    return {each["Name"] for each in client.volumes()["Volumes"] or ()}


def check_that_nothing_has_changed(
    host: EarlierHost, agent: Daemon, client: docker.APIClient
) -> None:
    """Assert that what ran runs, that what was down is, and that all is as it was recorded."""
    records = {each["name"]: each for each in ask(agent, "GET")}
    assert {name: (each["state"], each["desired"]) for name, each in records.items()} == {
        "by-hand": ("exited", "running"),
        "shop": ("running", "running"),
        "stopped": ("exited", "stopped"),
        "web": ("running", "running"),
    }
    assert {name: each["container_id"] for name, each in records.items()} == host.containers
    for name, record in records.items():
        assert record["volumes"] == mounts(client, host.containers[name])
    messages = {name: each["message"] for name, each in records.items()}
    assert "stopped through the container engine" in messages.pop("by-hand")
    assert set(messages.values()) == {None}
    passwords = {name: each["password"] for name, each in records.items()}
    assert passwords == {"by-hand": "set", "shop": "set", "stopped": "pending", "web": "set"}
    for name in RUNNING:
        assert [each["revision"] for each in ask(agent, "GET", f"/{name}/history")] == [2, 1]
    assert ask(agent, "GET", "/shop")["labels"] == ["service:shop"]


@pytest.mark.parametrize(
    "recorded",
    [*(pytest.param(each, marks=pytest.mark.engines) for each in SCHEMAS), NOW],
    indirect=True,
)
def test_its_apps_run_on_and_keep_their_files_through_all_that_is_done_to_them(
    host: EarlierHost, agent: Daemon, client: docker.APIClient
) -> None:
    started = {name: started_at(client, host.containers[name]) for name in RUNNING}
    before = {name: mounts(client, host.containers[name]) for name in host.containers}
    assert before["shop"]["/srv"] == "rollcall-shop"

    check_that_nothing_has_changed(host, agent, client)
    agent.restart()
    until_found(agent)
    check_that_nothing_has_changed(host, agent, client)
    assert {name: started_at(client, host.containers[name]) for name in RUNNING} == started
    told = agent.log().splitlines()
    assert any("[info" in line for line in told)
    assert [line for line in told if "[warning" in line or "[error" in line] == []

    # By the time that an app is started that is down now, all others that should be would be, too.
    client.kill(host.containers["web"])
    until(
        lambda: started_at(client, host.containers["web"]) != started["web"],
        "the start of an app that was killed",
        within=SOON_SECONDS,
    )
    assert ask(agent, "GET", "/by-hand")["state"] == "exited"

    web = ask(agent, "PUT", "/web", {"env": {}})
    shop = ask(agent, "PUT", "/shop/rollback", {"revision": 1})
    assert (shop["env"], shop["revision"]) == ({}, 3)
    for record in (web, shop):
        assert mounts(client, record["container_id"]) == before[record["name"]]
        for path in record["volumes"]:
            assert run_in_container(client, record, f"cat {path}/file").strip() == path
    stopped = ask(agent, "PUT", "/stopped/start")
    assert (stopped["state"], stopped["password"]) == ("running", "set")
    assert ask(agent, "PUT", "/by-hand/start")["message"] is None

    kept = {"name": "kept", "image": "shop", "memory": 32}
    assert ask(agent, "POST", "", kept)["volumes"]["/srv"] == "rollcall-kept"
    for name in (*host.containers, "kept"):
        ask(agent, "DELETE", f"/{name}")
    assert (volumes(client), client.containers(all=True)) == (set(), [])


def test_after_a_downgrade_the_earlier_agent_refuses_and_apps_run_on_until_todays_is_back(
    host: EarlierHost,
    agent: Daemon,
    dockerd: Dockerd,
    client: docker.APIClient,
    free_port: FreePort,
    tmp_path: Path,
) -> None:
    started = {name: started_at(client, host.containers[name]) for name in RUNNING}
    before = {each["Id"]: each["State"] for each in client.containers(all=True)}
    kept = volumes(client)
    assert agent.terminate() == 0
    database = host.database.read_bytes()

    refused = unpack_earlier_program(tmp_path / "earlier-program").run(
        database=host.database, engine=dockerd.url, port=free_port()
    )

    assert (refused.returncode, refused.stderr) == (
        1,
        f"rollcall-agent: {host.database}: was made by a newer agent; use that one\n",
    )
    assert host.database.read_bytes() == database
    assert {each["Id"]: each["State"] for each in client.containers(all=True)} == before
    assert volumes(client) == kept

    agent.start()
    until_found(agent)
    check_that_nothing_has_changed(host, agent, client)
    assert {name: started_at(client, host.containers[name]) for name in RUNNING} == started
