"""What apps write into their volumes outlives all that is done to them, on a real engine."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import docker
import docker.types
import pytest

from agent.apps.containers.volumes import volume_name
from dev.waiting import until
from tests.support.agent.containers import containers_of, derived_image, run_in_container
from tests.support.agent.kills.subject import image_id
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.run.release import some_of

pytestmark = [pytest.mark.real, pytest.mark.long(1)]

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1, "cpu": 50, "memory": 32}
FAILING = 'CMD ["/bin/sh", "-c", "exit 3"]'


class Host:
    """An agent, and the app of a test."""

    def __init__(self, agent: Daemon, client: docker.APIClient) -> None:
        self.agent = agent
        self.client = client
        self.name = f"data-{secrets.token_hex(4)}"
        self.path = f"/v1/apps/{self.name}"

    def ask(self, method: str, path: str = "", body: Any = None) -> dict[str, Any]:
        """Send a request for the app, which must succeed; return the answer."""
        answer = self.agent.ask(method, self.path + path, json=body)
        assert answer.ok, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def create(self, image: str, headers: Mapping[str, str] | None = None, **fields: Any) -> Any:
        """Ask for the app; return the response."""
        body = {"name": self.name, "image": image, **fields}
        return self.agent.ask("POST", "/v1/apps", json=body, headers=headers)

    def write(self, *paths: str) -> None:
        """Write a file at each path; it says where it is."""
        script = "; ".join(f"printf %s {path} > {path}/file" for path in paths)
        run_in_container(self.client, self.ask("GET"), script)

    def files(self, *paths: str) -> list[str]:
        """Return the content of the file at each path, empty if there is none."""
        script = "; ".join(f"cat {path}/file 2>/dev/null || true; echo" for path in paths)
        return run_in_container(self.client, self.ask("GET"), script).splitlines()

    def volumes(self) -> set[str]:
        """Return the names of all volumes of the engine."""
        return {each["Name"] for each in self.client.volumes()["Volumes"] or ()}

    def mounts(self) -> dict[str, str]:
        """Return the volumes in the app's container, by path."""
        seen = self.client.inspect_container(self.ask("GET")["container_id"])
        return {mount["Destination"]: mount["Name"] for mount in seen["Mounts"]}

    def clean(self) -> None:
        """Remove the app."""
        with suppress(AssertionError):
            self.ask("DELETE")


@pytest.fixture(scope="module")
def agent(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort, engine_url: str
) -> Iterator[Daemon]:
    """Yield the agent of all tests."""
    folder = tmp_path_factory.mktemp("data") / "daemons"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        yield daemons.agent(engine=engine_url, apps=SETTINGS)


@pytest.fixture
def host(agent: Daemon, docker_client: docker.APIClient) -> Iterator[Host]:
    """Yield the agent, which has no app yet."""
    host = Host(agent, docker_client)
    yield host
    host.clean()


@pytest.fixture(scope="module")
def images(docker_client: docker.APIClient, busybox_image: str) -> Iterator[dict[str, str]]:
    """Yield images by what they declare."""
    lines = {
        "none": "ENV VERSION=none",
        "data": "VOLUME /data",
        "both": "VOLUME /data /cache",
        "label": 'LABEL rollcall.data="/srv, /var/lib/app"',
        "failing": FAILING,
    }
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(derived_image(docker_client, busybox_image, line))
            for name, line in lines.items()
        }


@pytest.mark.parametrize(
    "change",
    some_of(
        [{"env": {"A": "1"}}, {"http_port": 20_999}, {"image": "both"}, {"data": ["/srv"]}, None],
        {"env": {"A": "1"}},
        reason="the next test changes image and data, and rebuilds; a port is changed as env is",
    ),
    ids=["env", "port", "image", "data", "rebuild"],
)
def test_files_in_a_volume_of_the_image_outlive_a_change(
    host: Host, images: Mapping[str, str], change: dict[str, Any] | None
) -> None:
    before = host.volumes()
    assert host.create(images["data"]).status_code == 201
    host.write("/data")

    if change is None:
        host.ask("PUT", "/rebuild")
    else:
        host.ask("PUT", "", {**change, **({"image": images["both"]} if "image" in change else {})})

    assert host.files("/data") == ["/data"]
    record = host.ask("GET")
    assert host.mounts() == record["volumes"]
    assert host.volumes() - before == set(record["volumes"].values())
    host.ask("DELETE")
    assert host.volumes() == before


@pytest.mark.engines
def test_files_outlive_images_that_add_and_drop_volumes_and_data_in_another_order(
    host: Host, images: Mapping[str, str]
) -> None:
    before = host.volumes()
    assert host.create(images["none"]).status_code == 201
    host.write("/srv")
    host.ask("PUT", "", {"image": images["both"]})
    host.write("/data", "/cache")
    host.ask("PUT", "", {"image": images["data"]})
    assert host.files("/srv", "/data", "/cache") == ["/srv", "/data", "/cache"]
    host.ask("PUT", "", {"data": ["/cache", "/srv", "/more"]})
    host.write("/more")
    host.ask("PUT", "", {"data": ["/more", "/srv"]})
    assert host.files("/srv", "/data", "/cache", "/more") == ["/srv", "/data", "", "/more"]
    host.ask("PUT", "", {"data": []})
    host.ask("PUT", "/rebuild")

    paths = ["/srv", "/data", "/cache", "/more"]
    assert host.files(*paths) == paths
    assert host.mounts()["/srv"] == volume_name(host.name)
    assert host.volumes() - before == set(host.mounts().values())
    host.ask("DELETE", "?keep_data=true")
    assert len(host.volumes() - before) == 4
    assert host.create(images["none"]).status_code == 201
    assert host.files(*paths) == paths
    host.ask("DELETE")
    assert host.volumes() == before


def test_an_update_that_fails_loses_no_file_and_leaves_no_volume(
    host: Host, images: Mapping[str, str]
) -> None:
    assert host.create(images["data"]).status_code == 201
    host.write("/data")
    before = host.volumes()

    body = {"image": images["failing"], "data": ["/data", "/more"]}
    assert host.agent.ask("PUT", host.path, json=body).status_code == 409

    assert host.files("/data") == ["/data"]
    assert host.volumes() == before


def test_the_label_of_an_image_may_name_several_paths(
    host: Host, images: Mapping[str, str]
) -> None:
    assert host.create(images["label"]).status_code == 201
    host.write("/srv", "/var/lib/app")

    host.ask("PUT", "/rebuild")

    assert host.files("/srv", "/var/lib/app") == ["/srv", "/var/lib/app"]
    assert host.mounts()["/srv"] == volume_name(host.name)


def test_a_path_within_another_has_a_volume_of_its_own(
    host: Host, images: Mapping[str, str]
) -> None:
    assert host.create(images["data"], data=["/data/db", "/data/db/log"]).status_code == 201
    paths = ["/data", "/data/db", "/data/db/log"]
    host.write(*paths)

    host.ask("PUT", "/rebuild")

    assert host.files(*paths) == paths
    assert sorted(host.mounts()) == paths


def test_a_failed_app_is_deleted_without_the_data_that_was_kept_from_before(
    host: Host, images: Mapping[str, str]
) -> None:
    before = host.volumes()
    assert host.create(images["none"]).status_code == 201
    host.write("/srv")
    host.ask("DELETE", "?keep_data=true")

    answer = host.create(images["failing"], {"Prefer": "respond-async"})
    assert answer.status_code == 202
    until(lambda: host.ask("GET")["state"] == "failed", "the failure", within=60)
    host.ask("DELETE")

    assert host.create(images["none"]).status_code == 201
    assert host.files("/srv") == ["/srv"]
    host.ask("DELETE")
    assert host.volumes() == before


def test_only_image_and_rebuild_bring_a_new_version_of_an_image(
    host: Host, docker_client: docker.APIClient, images: Mapping[str, str]
) -> None:
    tag = f"rollcall-test-moved:{host.name}"
    repository, _, version = tag.partition(":")

    def move(image: str) -> str:
        docker_client.tag(images[image], repository, tag=version, force=True)
        return image_id(docker_client, tag)

    try:
        first = move("none")
        assert host.create(tag).status_code == 201
        second = move("data")
        by_env = host.ask("PUT", "", {"env": {"A": "1"}})["image_id"]
        by_port = host.ask("PUT", "", {"http_port": 20_998})["image_id"]
        by_rebuild = host.ask("PUT", "/rebuild")["image_id"]
    finally:
        docker_client.remove_image(tag, force=True)

    assert (by_env, by_port, by_rebuild) == (first, first, second)


@pytest.mark.engines
def test_a_lost_database_is_rebuilt_with_the_map(host: Host, images: Mapping[str, str]) -> None:
    before = host.volumes()
    assert host.create(images["data"], data=["/a", "/b"]).status_code == 201
    host.write("/a", "/b", "/data")
    volumes = host.ask("PUT", "", {"data": ["/b"]})["volumes"]
    host.agent.terminate()
    for file in host.agent.config_path.parent.glob("store.db*"):
        file.unlink()
    host.agent.start()

    until(lambda: host.agent.ask("GET", host.path).ok, "the app", within=60)
    assert host.ask("GET")["volumes"] == volumes
    assert host.files("/b", "/data") == ["/b", "/data"]
    host.ask("PUT", "", {"data": ["/a"]})
    assert host.files("/a", "/data") == ["/a", "/data"]
    host.ask("DELETE")
    assert host.volumes() == before


def test_a_volume_of_another_agent_is_a_conflict_and_left_alone(
    host: Host, images: Mapping[str, str]
) -> None:
    name = volume_name(host.name)
    labels = {"rollcall.app": host.name, "rollcall.agent": "somebody-else", "rollcall.path": "/srv"}
    host.client.create_volume(name, labels=labels)
    try:
        answer = host.create(images["none"])
        assert answer.status_code == 409
        assert "somebody-else" in answer.json()["message"]
        assert host.client.inspect_volume(name)["Labels"] == labels
        assert containers_of(host.client, host.name) == []
    finally:
        host.client.remove_volume(name)
