"""Creating an app: all of it, or nothing of it."""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import docker
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import StartFailed
from agent.model import NewApp
from tests.support.agent.containers import containers_of, limits
from tests.support.agent.engines.real_engine import RealEngine
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


async def test_a_created_app_runs_and_answers_on_its_http_port(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image, cpu=50, memory=24, env={"GREETING": "hello"})

    assert record["state"] == "running"
    assert record["desired"] == "running"
    assert record["env"] == {"GREETING": "hello"}
    assert 20000 <= record["http_port"] < 30000
    assert record["ssh_port"] != record["http_port"]
    assert "roll call" in await agent.page(record)


@pytest.mark.engines
async def test_a_container_gets_the_limits_and_the_protection_of_the_host(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(busybox_image, cpu=150, memory=24)

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
    addresses = [address for each in host["PortBindings"].values() for address in each]
    assert {address["HostIp"] for address in addresses} == {"127.0.0.1"}
    assert not host["Binds"]
    assert [mount["Type"] for mount in inspected["Mounts"]] == ["volume"]
    assert inspected["Name"] == f"/{record['name']}"
    assert inspected["Config"]["StopTimeout"] == 1


async def test_an_app_may_have_all_cores_and_no_more_and_little_memory(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    cores = docker_client.info()["NCPU"]
    body = {"name": agent.name(), "image": busybox_image, "cpu": 100 * cores + 1}

    rejected = await agent.ask("POST", "", body)
    record = await agent.create(busybox_image, cpu=100 * cores, memory=6)

    assert rejected.status == 400
    assert f"1 to {100 * cores} percent" in rejected.json["message"]
    assert limits(docker_client, record)[1:3] == (100_000 * cores, 6 << 20)


async def test_defaults_are_the_configured_ones(agent: InProcessAgent, busybox_image: str) -> None:
    record = await agent.create(busybox_image)

    assert (record["cpu"], record["memory"]) == (50, 32)


async def test_a_foreign_container_of_that_name_is_a_conflict_and_left_alone(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = agent.name()
    foreign = docker_client.create_container(busybox_image, name=name)["Id"]
    try:
        body = {"name": name, "image": busybox_image}
        answer = await agent.ask("POST", "", body)
        # It is found out before an image is fetched for it, and before anything is promised.
        unseen = await agent.ask("POST", "", {**body, "image": "127.0.0.1:9/no/such"})
        promised = await agent.ask("POST", "", body, headers={"Prefer": "respond-async"})

        assert [each.status for each in (answer, unseen, promised)] == [409] * 3
        assert "not the agent's" in unseen.json["message"]
        assert docker_client.inspect_container(foreign)["Name"] == f"/{name}"
        assert (await agent.ask("GET", f"/{name}")).status == 404
    finally:
        docker_client.remove_container(foreign)


async def test_ports_that_others_hold_are_rejected_with_their_holder(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    body = {"name": agent.name(), "image": busybox_image}
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    foreign = server.sockets[0].getsockname()[1]
    async with server:
        taken = await agent.ask("POST", "", {**body, "http_port": record["http_port"]})
        bound = await agent.ask("POST", "", {**body, "ssh_port": foreign})
    await agent.ask("PUT", f"/{record['name']}/stop")
    kept = await agent.ask("POST", "", {**body, "http_port": record["http_port"]})

    assert taken.status == bound.status == kept.status == 409
    assert f"app `{record['name']}`" in taken.json["message"]
    assert f"port {foreign}" in bound.json["message"]


BAD_FIELDS: list[tuple[str, Any]] = [
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
    ("cpu", 1_000_000),
    ("memory", 5),
    ("memory", 1 << 40),
    ("memory", None),
    ("env", {"A=B": "x"}),
    ("env", {"A": "\0"}),
    ("env", {"A": 1}),
    ("description", "x" * 1025),
    ("description", None),
    ("privileged", True),
    ("HostConfig", {"Privileged": True}),
    ("volumes", ["/:/host"]),
]


async def test_a_field_that_is_not_what_it_may_be_is_named_and_nothing_is_done(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = agent.name()
    for field, value in BAD_FIELDS:
        body = {"name": name, "image": busybox_image, field: value}

        created = await agent.ask("POST", "", body)

        assert created.status == 400, (field, value)
        assert field in created.json["message"]
    assert not containers_of(docker_client, name)


async def test_equal_ports_are_rejected(agent: InProcessAgent, busybox_image: str) -> None:
    body = {"name": agent.name(), "image": busybox_image, "ssh_port": 29000, "http_port": 29000}

    answer = await agent.ask("POST", "", body)

    assert answer.status == 400
    assert "distinct" in answer.json["message"]


async def test_the_environment_holds_no_proxies_of_the_agents_user(
    tmp_path: Path,
    engine_url: str,
    monkeypatch: pytest.MonkeyPatch,
    docker_client: docker.APIClient,
    busybox_image: str,
) -> None:
    proxies = {"default": {"httpProxy": "http://user:s3cret@proxy.test:3128"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    async with in_process_agent(tmp_path / "agent", engine_url) as agent:
        record = await agent.create(busybox_image, env={"A": "1"})
        inspected = docker_client.inspect_container(record["container_id"])

    environment = inspected["Config"]["Env"]
    assert "A=1" in environment
    assert "proxy" not in str(environment).lower()


async def test_an_image_whose_server_cannot_be_reached_is_502_and_leaves_nothing(
    agent: InProcessAgent, docker_client: docker.APIClient
) -> None:
    name = agent.name()

    answer = await agent.ask("POST", "", {"name": name, "image": "127.0.0.1:1/nowhere"})

    assert answer.status == 502
    assert "127.0.0.1:1" in answer.json["message"]
    assert (await agent.ask("GET", f"/{name}")).status == 404
    assert not docker_client.volumes(filters={"name": f"rollcall-{name}"})["Volumes"]


async def test_an_app_that_does_not_stay_up_shows_its_exit_code_and_last_lines(
    agent: InProcessAgent, failing_image: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    name = agent.name()
    long = 'printf "%03000d\\n" 1; echo no configuration; exit 3'
    wordy = {"name": name, "image": busybox_image, "command": ["sh", "-c", long]}

    answer = await agent.ask("POST", "", {"name": name, "image": failing_image})
    cut = await agent.ask("POST", "", wordy)

    assert answer.status == 409
    assert "exit code 3" in answer.json["message"]
    assert "no configuration" in answer.json["message"]
    # Of a line that is cut off, nothing is left.
    assert cut.json["message"].endswith("; it wrote:\nno configuration")
    assert not containers_of(docker_client, name)
    assert not docker_client.volumes(filters={"name": f"rollcall-{name}"})["Volumes"]


# What it writes once the engine has started it again is no reason why it ended.
ENDS_ONCE = "[ -e /srv/ran ] && echo again && exec sleep 999; touch /srv/ran; echo why; exit 3"


class LateLog(RealEngine):
    """An engine that answers with a log only once it has started the container again."""

    async def logs(self, container_id: str, **window: Any) -> AsyncGenerator[bytes]:
        logs = super().logs

        async def runs_again() -> bool:
            whole = logs(container_id, tail=None, since=None, follow=False)
            return b"again" in b"".join([chunk async for chunk in whole])

        await async_until(runs_again)
        async for chunk in logs(container_id, **window):
            yield chunk


async def test_the_last_lines_are_those_of_the_run_that_ended_and_not_of_the_next(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    command = ("/bin/sh", "-c", ENDS_ONCE)
    new = NewApp(name=f"test-{secrets.token_hex(4)}", image=busybox_image, command=command)
    async with running_apps(tmp_path, LateLog(engine_url), LogCapture()) as apps:
        with pytest.raises(StartFailed, match="does not stay up") as failed:
            await apps.create(new, ASKER)

    assert failed.value.output == "why"


async def test_a_program_that_is_not_there_fails_the_start_with_the_engines_words(
    agent: InProcessAgent, broken_image: str, docker_client: docker.APIClient
) -> None:
    name = agent.name()

    answer = await agent.ask("POST", "", {"name": name, "image": broken_image})

    assert answer.status == 409
    assert "/no/such/program" in answer.json["message"]
    assert not containers_of(docker_client, name)


async def test_a_creation_in_the_background_is_202_at_once_and_then_runs(
    agent: InProcessAgent, busybox_image: str
) -> None:
    name = agent.name()

    answer = await agent.ask(
        "POST", "", {"name": name, "image": busybox_image}, headers={"Prefer": "respond-async"}
    )

    assert answer.status == 202
    assert answer.json["state"] in ("creating", "pulling")
    assert answer.json["progress"]["by"] == "operator"
    record = await agent.until(name, state="running")
    assert record["progress"] is None


async def test_a_creation_in_the_background_that_fails_is_kept_as_failed_with_the_reason(
    agent: InProcessAgent,
) -> None:
    name = agent.name()
    body = {"name": name, "image": "127.0.0.1:1/nowhere"}

    answer = await agent.ask("POST", "", body, headers={"Prefer": "respond-async"})

    assert answer.status == 202
    record = await agent.until(name, state="failed")
    assert "cannot be had" in record["message"]
    assert (await agent.ask("DELETE", f"/{name}")).status == 200


async def test_a_port_that_the_kernel_lends_to_others_is_taken_with_a_warning(
    tmp_path: Path, engine_url: str, busybox_image: str
) -> None:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        lent = any_port.getsockname()[1]
    async with in_process_agent(tmp_path, engine_url) as agent:
        record = await agent.create(busybox_image, http_port=lent)

        assert record["state"] == "running"
        warned = [each for each in agent.log.entries if "outgoing" in each["event"]]
        assert [(each["log_level"], each["app"], each["port"]) for each in warned] == [
            ("warning", record["name"], lent)
        ]
