"""A serving app stays up where its container could not be started again after a stop."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.apps.isolated_apps import on_host
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.engines.neighbour import fetch
from tests.support.agent.in_process import AgentResponse, InProcessAgent, in_process_agent
from tests.support.run.release import some_of
from tests.support.waiting import async_until

pytestmark = [
    pytest.mark.real("dockerd", "unshare", "ip", "iptables", "curl"),
    pytest.mark.engines,
]

FAILING = {"command": ["false"], "interval_seconds": 1, "retries": 1}
CHANGES: dict[str, Any] = {"restart": None, "rebuild": None, "": {"env": {"A": "1"}}}


async def flush_firewall(engine: Dockerd) -> None:
    """Remove all rules and chains of the engine, as a restart of nftables does."""
    for command in ("-t nat -F", "-t nat -X", "-F", "-X"):
        await asyncio.to_thread(on_host, engine, f"iptables {command}")


def assert_rejected(answer: AgentResponse) -> None:
    assert answer.status == 409
    assert "was not stopped" in answer.json["message"]
    assert "its ports cannot be published" in answer.json["message"]
    assert "restart the container engine" in answer.json["message"]


async def assert_serves_as_before(
    agent: InProcessAgent, engine: Dockerd, before: dict[str, Any]
) -> None:
    now = await agent.get(before["name"])
    for field in ("container_id", "started_at", "state", "env"):
        assert now[field] == before[field]
    page = await asyncio.to_thread(fetch, engine.inside(), f"127.0.0.1:{now['http_port']}")
    assert "Hello" in page


@pytest.mark.parametrize(
    "isolated", some_of([True, False], True, reason="the same in the engine's default network")
)
async def test_without_rules_of_its_firewall_the_engine_is_asked_to_stop_no_app(
    dockerd: Dockerd, tmp_path: Path, *, isolated: bool
) -> None:
    dockerd.start()
    dockerd.build()
    async with in_process_agent(tmp_path, dockerd.url, keep=True, isolated=isolated) as agent:
        before = await agent.create(IMAGE)
        name = before["name"]
        assert (await agent.ask("PUT", f"/{name}/restart")).status == 200
        before = await agent.get(name)
        await flush_firewall(dockerd)

        for path, body in CHANGES.items():
            assert_rejected(await agent.ask("PUT", f"/{name}/{path}".rstrip("/"), body))
            await assert_serves_as_before(agent, dockerd, before)

        assert (await agent.ask("PUT", f"/{name}", {"health": FAILING})).status == 200

        async def restart_has_failed() -> bool:
            events = (await agent.ask("GET", f"/{name}/events")).json
            return any(
                (each["actor"], each["action"], each["outcome"]) == ("agent", "restart", "failed")
                for each in events
            )

        await async_until(restart_has_failed)
        await assert_serves_as_before(agent, dockerd, before)
    with closing(dockerd.client()) as client:
        assert [each["Id"] for each in client.containers(all=True)] == [before["container_id"]]
        assert len(client.volumes()["Volumes"]) == 1


async def test_what_is_lost_during_a_drain_is_found_before_the_stop(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    dockerd.start()
    dockerd.build()
    async with in_process_agent(tmp_path, dockerd.url, keep=True) as agent:
        apps = {path: await agent.create(IMAGE, drain_seconds=3600) for path in CHANGES}
        paths = {path: f"/{app['name']}/{path}".rstrip("/") for path, app in apps.items()}
        begun = {
            path: asyncio.create_task(agent.ask("PUT", paths[path], body))
            for path, body in CHANGES.items()
        }
        for app in apps.values():

            async def drains(name: str = app["name"]) -> bool:
                progress = (await agent.get(name))["progress"]
                return progress is not None and progress["step"] == "draining"

            await async_until(drains)
        await flush_firewall(dockerd)

        for path, body in CHANGES.items():
            assert_rejected(await agent.ask("PUT", f"{paths[path]}?drain=0", body))
            assert_rejected(await begun[path])
            await assert_serves_as_before(agent, dockerd, apps[path])
