"""Starting, stopping, rebuilding and deleting apps over a real engine."""

import secrets

import docker
import pytest

from tests.support.agent.containers import containers_of, derived_image, read_file, write_file
from tests.support.agent.in_process import InProcessAgent

pytestmark = pytest.mark.real

NOT_PULLED = "image not pulled, the one on this host is used"


@pytest.mark.engines
async def test_stop_and_start_are_each_the_record_and_do_nothing_twice(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]

    stopped = await agent.ask("PUT", f"/{name}/stop")
    again = await agent.ask("PUT", f"/{name}/stop")
    started = await agent.ask("PUT", f"/{name}/start")
    twice = await agent.ask("PUT", f"/{name}/start")

    assert (stopped.status, stopped.json["state"]) == (200, "exited")
    assert stopped.json["desired"] == "stopped"
    assert stopped.json["exit_code"] is not None
    assert again.json == stopped.json
    assert (started.status, started.json["state"]) == (200, "running")
    assert started.json["desired"] == "running"
    assert started.json["container_id"] == record["container_id"]
    assert twice.json == started.json


async def test_a_restart_ends_the_app_and_starts_its_container_again(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    name = record["name"]

    again = await agent.ask("PUT", f"/{name}/restart")
    await agent.ask("PUT", f"/{name}/stop")
    started = await agent.ask("PUT", f"/{name}/restart")

    for answer in (again, started):
        assert (answer.status, answer.json["state"]) == (200, "running")
        assert answer.json["desired"] == "running"
        assert answer.json["container_id"] == record["container_id"]
    assert record["started_at"] < again.json["started_at"] < started.json["started_at"]
    assert again.json["revision"] == record["revision"]


@pytest.mark.engines
async def test_a_rebuild_replaces_the_container_and_keeps_data_labels_ports_and_desired(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, env={"A": "1"})
    name = record["name"]
    write_file(docker_client, record, "precious")
    await agent.ask("POST", f"/{name}/labels", {"Value": "service:web"})

    answer = await agent.ask("PUT", f"/{name}/rebuild")

    assert answer.status == 200
    assert answer.json["container_id"] != record["container_id"]
    kept = ("ssh_port", "http_port", "image", "env", "desired", "created_at", "cpu", "memory")
    assert {key: answer.json[key] for key in kept} == {key: record[key] for key in kept}
    assert answer.json["labels"] == ["service:web"]
    assert read_file(docker_client, answer.json) == "precious"
    assert len(containers_of(docker_client, name)) == 1

    await agent.ask("PUT", f"/{name}/stop")
    again = await agent.ask("PUT", f"/{name}/rebuild")

    assert (again.json["desired"], again.json["state"]) == ("stopped", "created")
    assert again.json["container_id"] != answer.json["container_id"]


@pytest.mark.engines
async def test_a_deleted_app_is_gone_with_its_data(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)

    answer = await agent.ask("DELETE", f"/{record['name']}")

    assert answer.status == 200
    assert answer.json == {"message": f"app `{record['name']}` is deleted"}
    assert (await agent.ask("GET", f"/{record['name']}")).status == 404
    assert not containers_of(docker_client, record["name"])
    volumes = docker_client.volumes(filters={"name": f"rollcall-{record['name']}"})
    assert not volumes["Volumes"]


async def test_kept_data_is_found_when_the_app_is_created_again(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    write_file(docker_client, record, "kept")

    assert (await agent.ask("DELETE", f"/{record['name']}?keep_data=true")).status == 200
    again = await agent.create(busybox_image, name=record["name"])

    assert read_file(docker_client, again) == "kept"


async def test_a_foreign_volume_of_that_name_is_a_conflict_and_left_alone(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = agent.name()
    docker_client.create_volume(f"rollcall-{name}")
    try:
        answer = await agent.ask("POST", "", {"name": name, "image": busybox_image})

        assert answer.status == 409
        assert docker_client.inspect_volume(f"rollcall-{name}")
        assert not containers_of(docker_client, name)
    finally:
        docker_client.remove_volume(f"rollcall-{name}")


@pytest.mark.engines
async def test_a_rebuild_takes_an_image_that_exists_only_here_as_it_now_is(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    tag = f"rollcall-test-local:{secrets.token_hex(4)}"
    repository, _, version = tag.partition(":")
    docker_client.tag(busybox_image, repository, version)
    try:
        record = await agent.create(tag)
        with derived_image(docker_client, busybox_image, "ENV RELEASE=2") as newer:
            docker_client.tag(newer, repository, version, force=True)

            rebuilt = await agent.ask("PUT", f"/{record['name']}/rebuild")

            assert rebuilt.status == 200, rebuilt.json
            container = docker_client.inspect_container(rebuilt.json["container_id"])
            assert "RELEASE=2" in container["Config"]["Env"]
            # The image store of containerd gives it a digest. So Docker Hub is asked, in vain.
            (listed,) = docker_client.images(name=tag)
            has_digest = any("<none>" not in each for each in listed["RepoDigests"] or ())
            asked = [each for each in agent.log.entries if each["event"] == NOT_PULLED]
            assert [each["image"] for each in asked] == ([tag, tag] if has_digest else [])
        await agent.ask("DELETE", f"/{record['name']}")
    finally:
        docker_client.remove_image(tag, force=True)


@pytest.mark.engines
async def test_a_start_whose_port_was_taken_meanwhile_names_the_holder_and_starts_once_it_is_free(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image)
    path, port = f"/{record['name']}", record["http_port"]
    await agent.ask("PUT", path + "/stop")
    published = docker_client.create_host_config(port_bindings={8000: ("127.0.0.1", port)})
    foreign = docker_client.create_container(busybox_image, ports=[8000], host_config=published)
    try:
        docker_client.start(foreign["Id"])
        name = docker_client.inspect_container(foreign["Id"])["Name"].removeprefix("/")
        rejected = await agent.ask("PUT", path + "/start")
    finally:
        docker_client.remove_container(foreign["Id"], force=True)

    assert rejected.status == 409
    assert f"port {port}" in rejected.json["message"]
    assert f"container `{name}`" in rejected.json["message"]
    after = await agent.get(record["name"])
    assert (after["desired"], after["container_id"]) == ("stopped", record["container_id"])
    assert (await agent.ask("PUT", path + "/start")).json["state"] == "running"


@pytest.mark.engines
async def test_an_app_whose_tag_is_gone_is_changed_with_the_image_that_it_runs_and_not_rebuilt(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    with derived_image(docker_client, busybox_image, "ENV A=1") as image:
        record = await agent.create(image)
        path = f"/{record['name']}"
        docker_client.remove_image(image, force=True)

        stopped = await agent.ask("PUT", path + "/stop")
        started = await agent.ask("PUT", path + "/start")
        rebuilt = await agent.ask("PUT", path + "/rebuild")
        limited = await agent.ask("PUT", path, {"memory": 40})
        same = await agent.get(record["name"])
        updated = await agent.ask("PUT", path, {"env": {"A": "2"}})

        docker_client.tag(record["image_id"], image)  # to be taken away by the fixture
        assert [stopped.json["state"], started.json["state"]] == ["exited", "running"]
        # 502 where Docker Hub cannot be reached.
        assert rebuilt.status in {404, 502}
        assert updated.status == 200
        assert image in rebuilt.json["message"]
        assert (limited.json["memory"], limited.json["env"]) == (40, {})
        assert (same["state"], same["container_id"]) == ("running", record["container_id"])
        assert updated.json["container_id"] != record["container_id"]
        assert updated.json["image_id"] == record["image_id"]
        assert updated.json["image"] == image
        await agent.ask("DELETE", path)
