"""Every operation on apps, over a real engine."""

import asyncio
import time
from typing import Any

import docker
import pytest

from tests.agent.rig import READER, Rig, eventually

pytestmark = pytest.mark.real

FIELDS = {
    "name",
    "image",
    "ssh_port",
    "http_port",
    "cpu",
    "memory",
    "env",
    "labels",
    "state",
    "desired",
    "container_id",
    "image_id",
    "created_at",
    "started_at",
    "finished_at",
    "exit_code",
    "restarts",
    "oom_killed",
    "message",
}
ONLY_INSPECT = {"started_at", "finished_at", "exit_code", "restarts", "oom_killed"}


def limits(client: docker.APIClient, record: dict[str, Any]) -> tuple[int, int, int, int]:
    host = client.inspect_container(record["container_id"])["HostConfig"]
    return host["CpuPeriod"], host["CpuQuota"], host["Memory"], host["MemorySwap"]


def containers_of(client: docker.APIClient, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.containers(
        all=True, filters={"label": f"rollcall.app={name}"}
    )
    return found


async def test_a_created_app_runs_and_answers_on_its_http_port(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image, cpu=50, memory=24, env={"GREETING": "hello"})

    assert record["state"] == "running"
    assert record["desired"] == "running"
    assert record["env"] == {"GREETING": "hello"}
    assert 20000 <= record["http_port"] < 30000
    assert record["ssh_port"] != record["http_port"]
    assert "roll call" in await rig.page(record)


async def test_a_record_has_every_field_and_a_list_leaves_out_what_only_an_inspect_tells(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image)

    assert record.keys() >= FIELDS
    assert record["started_at"].endswith("Z")
    assert record["finished_at"] is None
    assert record["exit_code"] is None
    assert record["restarts"] == 0
    assert record["oom_killed"] is False
    assert record["message"] is None
    (listed,) = [each for each in (await rig.ask("GET", "")).json if each["name"] == record["name"]]
    assert listed == {key: value for key, value in record.items() if key not in ONLY_INSPECT}


async def test_a_container_gets_the_limits_and_the_protection_of_the_host(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image, cpu=150, memory=24)

    assert limits(docker_client, record) == (100_000, 150_000, 24 << 20, 24 << 20)
    inspected = docker_client.inspect_container(record["container_id"])
    host = inspected["HostConfig"]
    assert host["PidsLimit"] == 512
    assert host["LogConfig"]["Config"] == {"max-file": "2", "max-size": "5120k"}
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert set(host["CapDrop"]) >= {"MKNOD", "NET_RAW"}
    assert host["Init"] is True
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert host["Privileged"] is False
    assert not host["Binds"]
    assert [mount["Type"] for mount in inspected["Mounts"]] == ["volume"]
    assert inspected["Name"] == f"/{record['name']}"
    assert inspected["Config"]["StopTimeout"] == 1


async def test_defaults_are_the_configured_ones(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)

    assert (record["cpu"], record["memory"]) == (50, 32)


async def test_a_name_in_use_is_a_conflict(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("POST", "", {"name": record["name"], "image": busybox_image})

    assert answer.status == 409
    assert record["name"] in answer.json["message"]


async def test_a_foreign_container_of_that_name_is_a_conflict_and_left_alone(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = rig.name()
    foreign = docker_client.create_container(busybox_image, name=name)["Id"]
    try:
        answer = await rig.ask("POST", "", {"name": name, "image": busybox_image})

        assert answer.status == 409
        assert docker_client.inspect_container(foreign)["Name"] == f"/{name}"
        assert (await rig.ask("GET", f"/{name}")).status == 404
    finally:
        docker_client.remove_container(foreign)


async def test_ports_that_others_hold_are_refused_with_their_holder(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image)
    body = {"name": rig.name(), "image": busybox_image}
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    foreign = server.sockets[0].getsockname()[1]
    async with server:
        taken = await rig.ask("POST", "", {**body, "http_port": record["http_port"]})
        bound = await rig.ask("POST", "", {**body, "ssh_port": foreign})

    assert taken.status == bound.status == 409
    assert f"app `{record['name']}`" in taken.json["message"]
    assert f"port {foreign}" in bound.json["message"]


async def test_a_port_of_a_stopped_app_stays_its_own(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)
    await rig.ask("PUT", f"/{record['name']}/stop")

    answer = await rig.ask(
        "POST",
        "",
        {"name": rig.name(), "image": busybox_image, "http_port": record["http_port"]},
    )

    assert answer.status == 409


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Web"),
        ("name", "../etc"),
        ("name", "a\n"),
        ("name", "x" * 64),
        ("image", "a b"),
        ("image", "--help"),
        ("ssh_port", 65536),
        ("ssh_port", -1),
        ("http_port", "80"),
        ("http_port", 80.0),
        ("http_port", True),
        ("cpu", 0),
        ("cpu", 1_000_000),
        ("memory", 5),
        ("memory", 1 << 40),
        ("memory", None),
        ("env", {"A=B": "x"}),
        ("env", {"A": "\0"}),
        ("env", {"A": 1}),
        ("privileged", True),
        ("HostConfig", {"Privileged": True}),
        ("volumes", ["/:/host"]),
    ],
)
async def test_a_field_that_is_not_what_it_may_be_is_named_and_nothing_is_done(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient, field: str, value: Any
) -> None:
    name = rig.name()
    body = {"name": name, "image": busybox_image, field: value}

    created = await rig.ask("POST", "", body)

    assert created.status == 400
    assert field in created.json["message"]
    assert not containers_of(docker_client, name)


async def test_equal_ports_are_refused(rig: Rig, busybox_image: str) -> None:
    body = {"name": rig.name(), "image": busybox_image, "ssh_port": 29000, "http_port": 29000}

    answer = await rig.ask("POST", "", body)

    assert answer.status == 400
    assert "distinct" in answer.json["message"]


async def test_an_image_that_cannot_be_had_is_404_and_leaves_nothing(
    rig: Rig, docker_client: docker.APIClient
) -> None:
    name = rig.name()

    answer = await rig.ask("POST", "", {"name": name, "image": "127.0.0.1:1/nowhere"})

    assert answer.status == 404
    assert "127.0.0.1:1" in answer.json["message"]
    assert (await rig.ask("GET", f"/{name}")).status == 404
    assert not docker_client.volumes(filters={"name": f"rollcall-{name}"})["Volumes"]


async def test_an_app_that_does_not_stay_up_tells_its_exit_code_and_last_lines(
    rig: Rig, failing_image: str, docker_client: docker.APIClient
) -> None:
    name = rig.name()

    answer = await rig.ask("POST", "", {"name": name, "image": failing_image})

    assert answer.status == 409
    assert "exit code 3" in answer.json["message"]
    assert "no configuration" in answer.json["message"]
    assert not containers_of(docker_client, name)
    assert not docker_client.volumes(filters={"name": f"rollcall-{name}"})["Volumes"]


async def test_a_program_that_is_not_there_fails_the_start_with_the_engines_words(
    rig: Rig, broken_image: str, docker_client: docker.APIClient
) -> None:
    name = rig.name()

    answer = await rig.ask("POST", "", {"name": name, "image": broken_image})

    assert answer.status == 409
    assert "/no/such/program" in answer.json["message"]
    assert not containers_of(docker_client, name)


async def test_a_creation_in_the_background_is_202_at_once_and_then_runs(
    rig: Rig, busybox_image: str
) -> None:
    name = rig.name()

    answer = await rig.ask(
        "POST", "", {"name": name, "image": busybox_image}, headers={"Prefer": "respond-async"}
    )

    assert answer.status == 202
    assert answer.json["state"] in ("creating", "pulling")
    assert answer.json["progress"]["by"] == "operator"
    record = await rig.until(name, state="running")
    assert record["progress"] is None


async def test_a_creation_in_the_background_that_fails_is_kept_as_failed_with_the_reason(
    rig: Rig,
) -> None:
    name = rig.name()
    body = {"name": name, "image": "127.0.0.1:1/nowhere"}

    answer = await rig.ask("POST", "", body, headers={"Prefer": "respond-async"})

    assert answer.status == 202
    record = await rig.until(name, state="failed")
    assert "cannot be had" in record["message"]
    assert (await rig.ask("DELETE", f"/{name}")).status == 200


async def test_limits_change_in_the_running_container(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image, cpu=50, memory=24)

    answer = await rig.ask("PUT", f"/{record['name']}", {"memory": 48, "cpu": 75})

    assert answer.status == 200
    assert (answer.json["memory"], answer.json["cpu"]) == (48, 75)
    assert answer.json["container_id"] == record["container_id"]
    assert answer.json["started_at"] == record["started_at"]
    assert limits(docker_client, record) == (100_000, 75_000, 48 << 20, 48 << 20)


async def test_limits_of_a_stopped_app_count_from_its_next_start(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)
    await rig.ask("PUT", f"/{record['name']}/stop")

    assert (await rig.ask("PUT", f"/{record['name']}", {"memory": 20})).status == 200
    started = (await rig.ask("PUT", f"/{record['name']}/start")).json

    assert started["container_id"] == record["container_id"]
    assert limits(docker_client, started)[2] == 20 << 20


async def test_less_memory_than_the_app_uses_is_a_conflict(
    rig: Rig, hungry_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(hungry_image, memory=64)

    async def holds_it() -> bool:
        used = (await rig.ask("GET", f"/{record['name']}/stats")).json["memory_bytes"]
        return bool(used > 12 << 20)

    await eventually(holds_it)
    answer = await rig.ask("PUT", f"/{record['name']}", {"memory": 8})

    assert answer.status == 409
    assert "MiB" in answer.json["message"]
    assert (await rig.get(record["name"]))["memory"] == 64
    assert limits(docker_client, record)[2] == 64 << 20


async def test_other_ports_replace_the_container_and_keep_the_data(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)
    write(docker_client, record, "kept")
    wanted = {"ssh_port": record["http_port"], "http_port": record["ssh_port"]}

    answer = await rig.ask("PUT", f"/{record['name']}", wanted)

    assert answer.status == 200, answer.json
    assert answer.json["container_id"] != record["container_id"]
    assert answer.json["http_port"] == record["ssh_port"]
    assert "roll call" in await rig.page(answer.json)
    assert read(docker_client, answer.json) == "kept"
    (only,) = containers_of(docker_client, record["name"])
    assert only["Names"] == [f"/{record['name']}"]


async def test_an_empty_update_changes_nothing(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("PUT", f"/{record['name']}", {})

    assert answer.status == 200
    assert answer.json == record


@pytest.mark.parametrize(
    ("field", "value"),
    [("ssh_port", 0), ("http_port", 70000), ("memory", 5), ("image", ""), ("privileged", True)],
)
async def test_a_bad_update_is_named_and_changes_nothing(
    rig: Rig, busybox_image: str, field: str, value: Any
) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("PUT", f"/{record['name']}", {field: value})

    assert answer.status == 400
    assert field in answer.json["message"]
    assert await rig.get(record["name"]) == record


async def test_an_update_to_an_image_that_does_not_start_leaves_the_old_app_running(
    rig: Rig, busybox_image: str, failing_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("PUT", f"/{record['name']}", {"image": failing_image})

    assert answer.status == 409
    assert "exit code 3" in answer.json["message"]
    after = await rig.get(record["name"])
    assert after["state"] == "running"
    assert after["container_id"] == record["container_id"]
    assert after["image"] == busybox_image
    assert "exit code 3" in after["message"]
    assert "roll call" in await rig.page(after)
    assert len(containers_of(docker_client, record["name"])) == 1


async def test_stop_and_start_are_each_the_record_and_do_nothing_twice(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image)
    name = record["name"]

    stopped = await rig.ask("PUT", f"/{name}/stop")
    again = await rig.ask("PUT", f"/{name}/stop")
    started = await rig.ask("PUT", f"/{name}/start")
    twice = await rig.ask("PUT", f"/{name}/start")

    assert (stopped.status, stopped.json["state"]) == (200, "exited")
    assert stopped.json["desired"] == "stopped"
    assert stopped.json["exit_code"] is not None
    assert again.json == stopped.json
    assert (started.status, started.json["state"]) == (200, "running")
    assert started.json["desired"] == "running"
    assert started.json["container_id"] == record["container_id"]
    assert twice.json == started.json


async def test_a_rebuild_replaces_the_container_and_keeps_data_labels_ports_and_desired(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image, env={"A": "1"})
    name = record["name"]
    write(docker_client, record, "precious")
    await rig.ask("POST", f"/{name}/labels", {"Value": "service:web"})

    answer = await rig.ask("PUT", f"/{name}/rebuild")

    assert answer.status == 200
    assert answer.json["container_id"] != record["container_id"]
    kept = ("ssh_port", "http_port", "image", "env", "desired", "created_at", "cpu", "memory")
    assert {key: answer.json[key] for key in kept} == {key: record[key] for key in kept}
    assert answer.json["labels"] == ["service:web"]
    assert read(docker_client, answer.json) == "precious"
    assert len(containers_of(docker_client, name)) == 1


async def test_a_stopped_app_stays_stopped_through_a_rebuild(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)
    await rig.ask("PUT", f"/{record['name']}/stop")

    answer = await rig.ask("PUT", f"/{record['name']}/rebuild")

    assert answer.json["desired"] == "stopped"
    assert answer.json["state"] == "created"
    assert answer.json["container_id"] != record["container_id"]


async def test_a_deleted_app_is_gone_with_its_data(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("DELETE", f"/{record['name']}")

    assert answer.status == 200
    assert answer.json == {"message": f"app `{record['name']}` is deleted"}
    assert (await rig.ask("GET", f"/{record['name']}")).status == 404
    assert not containers_of(docker_client, record["name"])
    volumes = docker_client.volumes(filters={"name": f"rollcall-{record['name']}"})
    assert not volumes["Volumes"]


async def test_kept_data_is_found_when_the_app_is_created_again(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await rig.create(busybox_image)
    write(docker_client, record, "kept")

    assert (await rig.ask("DELETE", f"/{record['name']}?keep_data=true")).status == 200
    again = await rig.create(busybox_image, name=record["name"])

    assert read(docker_client, again) == "kept"


async def test_a_foreign_volume_of_that_name_is_a_conflict_and_left_alone(
    rig: Rig, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = rig.name()
    docker_client.create_volume(f"rollcall-{name}")
    try:
        answer = await rig.ask("POST", "", {"name": name, "image": busybox_image})

        assert answer.status == 409
        assert docker_client.inspect_volume(f"rollcall-{name}")
        assert not containers_of(docker_client, name)
    finally:
        docker_client.remove_volume(f"rollcall-{name}")


async def test_the_list_is_sorted_and_filtered_by_label_and_state(
    rig: Rig, busybox_image: str
) -> None:
    first = await rig.create(busybox_image, name=rig.name("b"))
    second = await rig.create(busybox_image, name=rig.name("a"))
    await rig.ask("POST", f"/{first['name']}/labels", {"Value": "tier:front"})
    await rig.ask("PUT", f"/{second['name']}/stop")

    async def names(query: str) -> list[str]:
        listed = (await rig.ask("GET", query)).json
        return [each["name"] for each in listed if each["name"] in rig.used]

    assert await names("") == [second["name"], first["name"]]
    assert await names("?label=tier:front") == [first["name"]]
    assert await names("?state=exited") == [second["name"]]
    assert await names("?state=exited&state=running") == [second["name"], first["name"]]
    assert await names("?label=tier:front&state=exited") == []
    assert (await rig.ask("GET", "?color=red")).status == 400


async def test_a_key_that_may_only_read_sees_the_names_in_env_and_no_values(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image, env={"TOKEN": "s3cret"})

    one = await rig.ask("GET", f"/{record['name']}", key=READER)
    listed = await rig.ask("GET", "", key=READER)

    assert one.json["env"] == {"TOKEN": None}
    assert {"TOKEN": None} in [each["env"] for each in listed.json]


async def test_processes_are_those_of_the_container(rig: Rig, busybox_image: str) -> None:
    record = await rig.create(busybox_image)

    processes = (await rig.ask("GET", f"/{record['name']}/processes")).json

    assert any("httpd" in each["command"] for each in processes)
    assert set(processes[0]) == {
        "pid",
        "ppid",
        "user",
        "cpu_percent",
        "memory_bytes",
        "elapsed_seconds",
        "command",
    }
    await rig.ask("PUT", f"/{record['name']}/stop")
    assert (await rig.ask("GET", f"/{record['name']}/processes")).json == []


async def test_stats_need_two_readings_for_the_cpu_and_a_running_app(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image, memory=24)

    first = (await rig.ask("GET", f"/{record['name']}/stats")).json
    second = (await rig.ask("GET", f"/{record['name']}/stats")).json

    assert first["cpu_percent"] is None
    assert second["cpu_percent"] >= 0
    assert 0 < first["memory_bytes"] < first["memory_limit_bytes"] == 24 << 20
    assert first["pids"] >= 1
    await rig.ask("PUT", f"/{record['name']}/stop")
    assert (await rig.ask("GET", f"/{record['name']}/stats")).status == 409


async def test_labels_are_added_once_and_removed(rig: Rig, busybox_image: str) -> None:
    path = f"/{(await rig.create(busybox_image))['name']}/labels"

    added = await rig.ask("POST", path, {"Value": "url:http://x:1/"})
    again = await rig.ask("POST", path, {"Value": "url:http://x:1/"})
    removed = await rig.ask("DELETE", path, {"Value": "url:http://x:1/"})
    absent = await rig.ask("DELETE", path, {"Value": "url:http://x:1/"})

    assert (added.status, added.json["labels"]) == (200, ["url:http://x:1/"])
    assert (again.status, again.json["labels"]) == (200, ["url:http://x:1/"])
    assert (removed.status, removed.json["labels"]) == (200, [])
    assert absent.status == 404


@pytest.mark.parametrize(
    "body",
    [{}, {"value": "a:b"}, {"Value": "ab"}, {"Value": ":b"}, {"Value": "a:\n"}, {"Value": 1}],
)
async def test_what_is_no_label_is_refused(rig: Rig, busybox_image: str, body: Any) -> None:
    record = await rig.create(busybox_image)

    answer = await rig.ask("POST", f"/{record['name']}/labels", body)

    assert answer.status == 400
    assert (await rig.get(record["name"]))["labels"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("PUT", "/start"),
        ("PUT", "/stop"),
        ("PUT", "/rebuild"),
        ("GET", "/processes"),
        ("GET", "/stats"),
        ("GET", "/logs"),
        ("POST", "/labels"),
        ("DELETE", "/labels"),
        ("PUT", "/keys"),
    ],
)
async def test_an_unknown_app_is_404_for_each_operation(rig: Rig, method: str, path: str) -> None:
    body: Any = {"Value": "a:b"} if path == "/labels" else {}
    body = "a good password" if path == "/keys" else body

    answer = await rig.ask(method, f"/no-such-app{path}", body)

    assert answer.status == 404
    assert "no-such-app" in answer.json["message"]


@pytest.mark.parametrize("name", ["..%2f..%2fetc", "%2e%2e", "a%00", "a%0a", "A", "x" * 300])
async def test_a_path_that_is_no_name_is_404(rig: Rig, name: str) -> None:
    assert (await rig.ask("PUT", f"/{name}/rebuild")).status == 404


async def test_a_second_change_waits_its_turn_and_then_is_a_conflict_that_names_the_first(
    rig: Rig, stubborn_image: str
) -> None:
    record = await rig.create(stubborn_image)
    name = record["name"]

    stopping = asyncio.create_task(rig.ask("PUT", f"/{name}/stop"))
    await rig.until_busy(name)
    busy = await rig.ask("PUT", f"/{name}/start", headers={"Prefer": "wait=0"})
    waited = await rig.ask("PUT", f"/{name}/start")

    assert busy.status == 409
    assert "being stopped" in busy.json["message"]
    assert "`operator`" in busy.json["message"]
    assert (await stopping).status == 200
    assert waited.status == 200
    assert waited.json["state"] == "running"


async def test_a_change_goes_on_when_its_client_has_gone(rig: Rig, stubborn_image: str) -> None:
    record = await rig.create(stubborn_image)

    request = asyncio.create_task(rig.ask("PUT", f"/{record['name']}/stop"))
    await rig.until_busy(record["name"])
    request.cancel()

    await rig.until(record["name"], state="exited", desired="stopped")


async def test_apps_change_side_by_side(rig: Rig, stubborn_image: str) -> None:
    records = [await rig.create(stubborn_image) for _ in range(3)]

    began = time.monotonic()
    await asyncio.gather(*(rig.ask("PUT", f"/{each['name']}/stop") for each in records))

    one_after_the_other = 3 * 1.0  # each takes its second of grace
    assert time.monotonic() - began < one_after_the_other


def write(client: docker.APIClient, record: dict[str, Any], text: str) -> None:
    run(client, record, f"printf %s {text} > /srv/file")


def read(client: docker.APIClient, record: dict[str, Any]) -> str:
    return run(client, record, "cat /srv/file")


def run(client: docker.APIClient, record: dict[str, Any], script: str) -> str:
    made = client.exec_create(record["container_id"], ["/bin/sh", "-c", script])
    output: bytes = client.exec_start(made["Id"])
    assert client.exec_inspect(made["Id"])["ExitCode"] == 0, output
    return output.decode()
