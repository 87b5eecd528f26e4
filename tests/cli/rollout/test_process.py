"""A rollout over three agents that are played: Ctrl-C, what is left, and the resume."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import APP_RECORD, FakeAgent, fake_agent
from tests.support.cli.process import WITH_SIGINT, CommandLine
from tests.support.registry.in_process import InProcessRegistry

RECORD: dict[str, Any] = {
    **APP_RECORD,
    "health": None,
    "http_port": 1,
}
REBUILD = ("PUT", "/v1/apps/shop/rebuild")
SECONDS = 60


@pytest.fixture
async def agents(registry: InProcessRegistry) -> AsyncIterator[list[FakeAgent]]:
    """Yield the agents of web-0 to web-2, which all have the app."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(fake_agent()) for _ in range(3)]
        for number, agent in enumerate(running):
            agent.answers["GET", "/v1/apps/shop"] = RECORD
            agent.answers[REBUILD] = RECORD
            await registry.post(f"web-{number}", kv={"agent.url": agent.url})
        yield running


def waiting(begun: asyncio.Event, go_on: asyncio.Event) -> Callable[[web.Request], Awaitable[Any]]:
    """Return an answer to a rebuild that comes once it may."""

    async def answer(_request: web.Request) -> web.Response:
        begun.set()
        await go_on.wait()
        return web.json_response(RECORD)

    return answer


async def test_ctrl_c_ends_it_after_the_batch_and_a_resume_does_the_rest(
    rollcall: Rollcall, agents: list[FakeAgent]
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    agents[0].answers[REBUILD] = waiting(begun, go_on)
    command = CommandLine(rollcall.contexts.parent)
    process = await asyncio.create_subprocess_exec(
        *(*WITH_SIGINT, command.program, "rebuild", "shop", "--batch", "2", "-o", "name"),
        env=command.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        await begun.wait()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"ending after the present batch" in await process.stderr.readline()
        go_on.set()
        _, told = await process.communicate()

    assert process.returncode == 130
    assert told.endswith(b"next: rollcall rebuild shop --resume\n")
    assert [len(agent.changes()) for agent in agents] == [1, 1, 0]

    refused = await asyncio.to_thread(command.run, "rebuild", "shop", "web-1", "--resume")
    assert refused.returncode == 2
    done = await asyncio.to_thread(command.run, "rebuild", "shop", "--resume", "-o", "json")

    assert done.returncode == 0, done.stderr
    assert [len(agent.changes()) for agent in agents] == [1, 1, 1]


async def test_a_host_that_fails_ends_it_and_a_stopped_app_does_not(
    rollcall: Rollcall, agents: list[FakeAgent]
) -> None:
    stopped = RECORD | {"state": "exited", "desired": "stopped", "health": {"path": "/"}}
    agents[0].answers["GET", "/v1/apps/shop"] = stopped
    del agents[1].answers[REBUILD]
    command = CommandLine(rollcall.contexts.parent)

    done = await asyncio.to_thread(
        command.run, "rebuild", "shop", "--check-http", "/", "-o", "json"
    )

    assert done.returncode == 1
    assert [len(agent.changes()) for agent in agents] == [1, 1, 0]
    states = [line.split('"')[0] for line in done.stdout.split('"state": "')[1:]]
    assert states == ["done", "failed", "waiting"]
