"""What is answered about apps: records, lists, processes, stats, labels."""

from typing import Any

import pytest

from tests.support.agent.in_process import READER, InProcessAgent
from tests.support.waiting import async_until

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
    "description",
    "command",
    "data",
    "http_target",
    "ssh_target",
    "health",
    "pull",
    "state",
    "desired",
    "healthy",
    "container_id",
    "image_id",
    "created_at",
    "started_at",
    "finished_at",
    "exit_code",
    "restarts",
    "crashing",
    "oom_killed",
    "message",
    "password",
    "progress",
    "revision",
    # Beyond the contract.
    "stop_seconds",
    "drain_seconds",
    "volumes",
}
ONLY_INSPECT = {"started_at", "oom_killed"}


async def test_a_record_has_every_field_and_a_list_leaves_out_what_only_an_inspect_shows(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)

    assert record.keys() == FIELDS
    assert record["started_at"].endswith("Z")
    assert record["finished_at"] is None
    assert record["exit_code"] is None
    assert record["restarts"] == 0
    assert record["crashing"] is False
    assert record["oom_killed"] is False
    assert record["message"] is None
    (listed,) = [
        each for each in (await agent.ask("GET", "")).json if each["name"] == record["name"]
    ]
    assert listed == {key: value for key, value in record.items() if key not in ONLY_INSPECT}


async def test_the_list_is_sorted_and_filtered_by_label_and_state(
    agent: InProcessAgent, busybox_image: str
) -> None:
    first = await agent.create(busybox_image, name=agent.name("b"))
    second = await agent.create(busybox_image, name=agent.name("a"))
    await agent.ask("POST", f"/{first['name']}/labels", {"Value": "tier:front"})
    await agent.ask("PUT", f"/{second['name']}/stop")

    async def names(query: str) -> list[str]:
        listed = (await agent.ask("GET", query)).json
        return [each["name"] for each in listed if each["name"] in agent.used]

    assert await names("") == [second["name"], first["name"]]
    assert await names("?label=tier:front") == [first["name"]]
    assert await names("?state=exited") == [second["name"]]
    assert await names("?state=exited&state=running") == [second["name"], first["name"]]
    assert await names("?label=tier:front&state=exited") == []
    assert await names("?label=tier:front&label=tier:back") == []
    assert await names("?label=tier:front" + "&label=tier:front" * 20) == [first["name"]]
    assert (await agent.ask("GET", "?color=red")).status == 400
    many = "&".join(f"label=tier:{number}" for number in range(17))
    rejected = await agent.ask("GET", f"?{many}")
    assert (rejected.status, "at most 16" in rejected.json["message"]) == (400, True)


async def test_a_key_that_may_only_read_sees_the_names_in_env_and_no_values(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image, env={"TOKEN": "s3cret"})

    one = await agent.ask("GET", f"/{record['name']}", key=READER)
    listed = await agent.ask("GET", "", key=READER)

    assert one.json["env"] == {"TOKEN": None}
    assert {"TOKEN": None} in [each["env"] for each in listed.json]


@pytest.mark.engines
async def test_processes_and_stats_are_those_of_a_running_container(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image, memory=24)

    processes = (await agent.ask("GET", f"/{record['name']}/processes")).json

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
    first = (await agent.ask("GET", f"/{record['name']}/stats")).json

    async def has_second_reading() -> bool:
        stats = (await agent.ask("GET", f"/{record['name']}/stats")).json
        return stats["cpu_percent"] is not None and stats["cpu_percent"] >= 0

    assert first["cpu_percent"] is None  # that needs two readings
    await async_until(has_second_reading)  # between the first two, no time may have passed
    assert 0 < first["memory_bytes"] < first["memory_limit_bytes"] == 24 << 20
    assert first["pids"] >= 1
    await agent.ask("PUT", f"/{record['name']}/stop")
    assert (await agent.ask("GET", f"/{record['name']}/processes")).json == []
    assert (await agent.ask("GET", f"/{record['name']}/stats")).status == 409


async def test_labels_are_added_once_and_removed_and_what_is_no_label_is_rejected(
    agent: InProcessAgent, busybox_image: str
) -> None:
    name = (await agent.create(busybox_image))["name"]
    path = f"/{name}/labels"

    added = await agent.ask("POST", path, {"Value": "url:http://x:1/"})
    again = await agent.ask("POST", path, {"Value": "url:http://x:1/"})
    removed = await agent.ask("DELETE", path, {"Value": "url:http://x:1/"})
    absent = await agent.ask("DELETE", path, {"Value": "url:http://x:1/"})

    assert (added.status, added.json["labels"]) == (200, ["url:http://x:1/"])
    assert (again.status, again.json["labels"]) == (200, ["url:http://x:1/"])
    assert (removed.status, removed.json["labels"]) == (200, [])
    assert absent.status == 404
    bodies: list[Any] = [{}, {"value": "a:b"}]
    bodies += [{"Value": value} for value in ("ab", ":b", "a:\n", 1)]
    for body in bodies:
        answer = await agent.ask("POST", path, body)

        assert answer.status == 400, body
        assert (await agent.get(name))["labels"] == []


OPERATIONS = [
    ("GET", ""),
    ("PUT", ""),
    ("DELETE", ""),
    ("PUT", "/start"),
    ("PUT", "/stop"),
    ("PUT", "/rebuild"),
    ("PUT", "/rollback"),
    ("GET", "/history"),
    ("GET", "/events"),
    ("GET", "/data"),
    ("PUT", "/data"),
    ("GET", "/processes"),
    ("GET", "/stats"),
    ("GET", "/logs"),
    ("POST", "/labels"),
    ("DELETE", "/labels"),
    ("PUT", "/keys"),
]


async def test_an_unknown_app_is_404_for_each_operation(agent: InProcessAgent) -> None:
    for method, path in OPERATIONS:
        body: Any = {"Value": "a:b"} if path == "/labels" else {}
        body = "a good password" if path == "/keys" else body

        answer = await agent.ask(method, f"/no-such-app{path}", body)

        assert answer.status == 404, (method, path)
        assert "no-such-app" in answer.json["message"]


async def test_a_path_that_is_no_name_is_404(agent: InProcessAgent) -> None:
    for name in ("..%2f..%2fetc", "%2e%2e", "a%00", "a%0a", "A", "x" * 300):
        assert (await agent.ask("PUT", f"/{name}/rebuild")).status == 404, name
