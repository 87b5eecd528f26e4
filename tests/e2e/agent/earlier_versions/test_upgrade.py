"""A host that is upgraded with its apps, as earlier versions had made them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from dev.waiting import until
from tests.support.agent.containers import run_in_container
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.agent.recorded.earlier_host import RECORDED, EarlierHost
from tests.support.daemons import Daemon, Daemons

pytestmark = [
    pytest.mark.real("dockerd", "unshare", "ip"),
    pytest.mark.long(1),
    pytest.mark.release("upgrades from earlier states, each with a host of its own"),
]

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1}
PATHS = ("/srv", "/data", "/cache")
SOON_SECONDS = 30.0


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine with the image that apps are made of."""
    with Dockerd() as engine:
        engine.start()
        engine.build()
        yield engine


@pytest.fixture
def client(dockerd: Dockerd) -> Iterator[docker.APIClient]:
    client = dockerd.client()
    yield client
    client.close()


@pytest.fixture(params=["schema_2", "schema_3"])
def host(request: pytest.FixtureRequest, client: docker.APIClient, tmp_path: Path) -> EarlierHost:
    """Return a host with an app that runs, one that a person stopped, others that are down."""
    host = EarlierHost(RECORDED / request.param, client, tmp_path / "state")
    host.make()
    for container in host.containers.values():
        client.start(container)
    for name in ("web", "stopped"):
        write(client, host.containers[name])
    client.stop(host.containers["stopped"], timeout=1)
    client.stop(host.containers["by-hand"], timeout=1)
    client.kill(host.containers["plain"])
    return host


@pytest.fixture
def agent(host: EarlierHost, dockerd: Dockerd, daemons: Daemons) -> Daemon:
    """Return today's agent, on the state of the earlier one, once it has looked at the apps."""
    agent = daemons.agent(engine=dockerd.url, apps=SETTINGS, store=f"sqlite:///{host.database}")
    until_listed(agent)
    return agent


def write(client: docker.APIClient, container: str) -> None:
    """Write a file at each path that keeps its files; it says where it is."""
    script = "; ".join(f"echo {path} > {path}/file" for path in PATHS)
    run_in_container(client, {"container_id": container}, script)


def files(client: docker.APIClient, record: dict[str, Any]) -> list[str]:
    script = "; ".join(f"cat {path}/file" for path in PATHS)
    return run_in_container(client, record, script).split()


def ask(agent: Daemon, method: str, path: str = "", body: Any = None) -> Any:
    """Send a request for apps that must succeed; return the content of the answer."""
    answer = agent.ask(method, f"/v1/apps{path}", json=body)
    assert answer.ok, answer.text
    return answer.json()


def mounts(client: docker.APIClient, container: str) -> dict[str, str]:
    """Return the volumes of a container, by path."""
    seen = client.inspect_container(container)["Mounts"]
    return {mount["Destination"]: mount["Name"] for mount in seen}


def volumes(client: docker.APIClient) -> set[str]:
    return {each["Name"] for each in client.volumes()["Volumes"] or ()}


def test_apps_of_earlier_versions_run_on_and_keep_their_files_through_all_that_is_done_to_them(
    host: EarlierHost, agent: Daemon, client: docker.APIClient
) -> None:
    started = client.inspect_container(host.containers["web"])["State"]["StartedAt"]
    before = {name: mounts(client, host.containers[name]) for name in ("web", "stopped")}
    assert before["web"]["/srv"] == "rollcall-web"

    check_that_nothing_has_changed(host, agent)
    agent.restart()
    until_listed(agent)
    check_that_nothing_has_changed(host, agent)
    assert client.inspect_container(host.containers["web"])["State"]["StartedAt"] == started

    web = ask(agent, "PUT", "/web", {"env": {"TOKEN": "other"}})
    ask(agent, "PUT", "/stopped/rebuild")
    stopped = ask(agent, "PUT", "/stopped/start")
    for record in (web, stopped):
        assert record["volumes"] == before[record["name"]]
        assert mounts(client, record["container_id"]) == record["volumes"]
        assert files(client, record) == list(PATHS)
    assert (web["state"], web["password"]) == ("running", "set")
    assert run_in_container(client, web, "cat /etc/shadow").startswith("app:$6$rounds=100000$")
    assert ask(agent, "PUT", "/plain/start")["state"] == "running"
    assert ask(agent, "PUT", "/by-hand/rebuild")["message"] is None

    ask(agent, "PUT", "/web/rebuild")
    ask(agent, "DELETE", "/web?keep_data=true")
    again = ask(agent, "POST", "", {"name": "web", "image": "shop", "memory": 32})
    assert (again["volumes"], files(client, again)) == (before["web"], list(PATHS))

    body = {"name": "kept", "image": "shop", "memory": 32}
    assert ask(agent, "POST", "", body)["volumes"]["/srv"] == "rollcall-kept"
    for name in (*host.containers, "failed", "kept"):
        ask(agent, "DELETE", f"/{name}")
    assert (volumes(client), client.containers(all=True)) == (set(), [])


def check_that_nothing_has_changed(host: EarlierHost, agent: Daemon) -> None:
    """Assert that what ran runs, and that what was down is, and says why."""
    records = {each["name"]: each for each in ask(agent, "GET")}
    assert {name: (each["state"], each["desired"]) for name, each in records.items()} == {
        "by-hand": ("exited", "running"),
        "failed": ("failed", "running"),
        "plain": ("exited", "running"),
        "stopped": ("exited", "stopped"),
        "web": ("running", "running"),
    }
    for name in ("by-hand", "plain"):
        assert "stays down until it is started or rebuilt" in records[name]["message"]
    web = records["web"]
    assert (web["container_id"], web["message"]) == (host.containers["web"], None)
    assert (web["env"], web["labels"]) == ({"TOKEN": "s3cret"}, ["service:web"])
    assert (web["ssh_port"], web["http_port"]) == (21001, 22001)
    assert (web["cpu"], web["memory"], web["password"]) == (50, 32, "set")


def until_listed(agent: Daemon) -> None:
    """Wait until the agent has found its apps."""
    until(lambda: agent.ask("GET", "/v1/apps").ok, "the apps", within=SOON_SECONDS)
