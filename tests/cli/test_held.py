"""`forget --held` and `doctor`: hosts that are due to be forgotten, and held as they are many."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.terminal import at_terminal
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import NO_LIMITS, InProcessRegistry, in_process_registry

pytestmark = pytest.mark.slow

LIMITS = msgspec.structs.replace(NO_LIMITS, expire_at_most_percent=10)
HOSTS = [f"web-{number}" for number in range(3)]
QUESTION = "Forget 3 hosts, and all their targets? [y/N]: "


@pytest.fixture
async def registry() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry whose hosts were all cut off two days ago, but for one."""
    async with in_process_registry(limits=LIMITS) as running:
        for hostname in (*HOSTS, "db-1"):
            await running.post(hostname)
        running.clock.pass_seconds(172_800)
        await running.post("db-1")
        yield running


async def known(registry: InProcessRegistry) -> list[str]:
    return [node["hostname"] for node in await registry.get("/nodes")]


async def test_they_are_listed_and_forgotten_once_that_is_confirmed(
    rollcall: Rollcall, registry: InProcessRegistry
) -> None:
    for answer, status, left in (("n", 1, ["db-1", *HOSTS]), ("y", 0, ["db-1"])):
        ended, shown = await asyncio.to_thread(
            at_terminal, rollcall, "forget", "--held", typed={QUESTION: answer}
        )

        assert ended == status, shown
        assert [name for name in HOSTS if f"{name}: no heartbeat since" in shown] == HOSTS
        assert await known(registry) == left
        assert ("3 hosts forgotten; an agent that runs registers it again" in shown) == (not status)

    again = await rollcall("forget", "--held", "--yes")
    assert (again.status, again.err) == (0, "no node is held\n")


async def test_a_host_that_reports_again_meanwhile_is_kept(
    rollcall: Rollcall, registry: InProcessRegistry, key_file: Path, http_server: HttpServer
) -> None:
    async def pass_on(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            await registry.post("web-1")
        answer = await registry.ask(request.method, request.path_qs)
        return web.Response(status=answer.status, body=answer.body)

    url = await http_server(pass_on)
    rollcall.use(registry=url, key_file=str(key_file), allow_plain=["127.0.0.1"])
    ran = await rollcall("forget", "--held", "--yes")

    assert (ran.status, await known(registry)) == (0, ["db-1", "web-1"])
    assert "web-1 reports again, so it is kept" in ran.err
    assert "2 hosts forgotten" in ran.err


@pytest.mark.parametrize("arguments", [[], ["web-1", "--held"]])
async def test_hosts_are_named_or_all_that_are_held(
    rollcall: Rollcall, registry: InProcessRegistry, arguments: list[str]
) -> None:
    ran = await rollcall("forget", *arguments, "--yes")

    assert ran.status == 2
    assert "name hosts, or add --held" in ran.err
    assert len(await known(registry)) == 4


@pytest.mark.usefixtures("registry")
async def test_doctor_reports_them_with_the_command_that_forgets_them(rollcall: Rollcall) -> None:
    ran = await rollcall("doctor", "-o", "json")

    (held,) = [each for each in msgspec.json.decode(ran.out) if "held" in each["text"]]
    assert held["text"].startswith("3 stale hosts held: ")
    assert held["text"].endswith("; if they are gone for good: rollcall forget --held")
    assert held["next"] == ["rollcall nodes --stale"]
