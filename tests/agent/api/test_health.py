"""GET /healthz of the agent says whether its engine can be asked."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.agent.engines.fake_docker_api import FakeDockerApi, fake_docker_api
from tests.support.agent.in_process import AgentResponse, InProcessAgent
from tests.support.agent.in_process import in_process_agent as running_agent
from tests.support.waiting import async_until


async def health(agent: InProcessAgent) -> AgentResponse:
    async with agent.session.get(f"{agent.base_url}/healthz") as response:
        return AgentResponse(response.status, await response.json(), response.headers)


async def until_status(agent: InProcessAgent, status: int) -> AgentResponse:
    async def answered() -> bool:
        return (await health(agent)).status == status

    await async_until(answered)
    return await health(agent)


def let_events_go_on(fake: FakeDockerApi) -> None:
    """Have an engine on which nothing happens."""

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    fake.handle("GET /events", events)
    fake.respond("GET /containers/json", (200, []))


@pytest.mark.slow
async def test_an_agent_without_an_engine_is_unavailable_and_says_why(tmp_path: Path) -> None:
    async with running_agent(tmp_path, "unix:///nonexistent/docker.sock") as agent:
        answer = await health(agent)

    assert answer.status == 503
    assert answer.json == {
        "message": "the container engine cannot be reached: its socket does not exist"
    }
    assert answer.headers["Retry-After"] == "5"


@pytest.mark.slow
async def test_an_engine_that_hangs_is_reported_until_it_answers_again(tmp_path: Path) -> None:
    async with fake_docker_api() as fake:
        let_events_go_on(fake)
        go_on = asyncio.Event()

        async def hang(_: web.Request) -> web.Response:
            await go_on.wait()
            return web.json_response([])

        async with running_agent(tmp_path, fake.url, timeout_seconds=0.5) as agent:
            assert (await until_status(agent, 200)).json == {"message": "ok"}

            fake.handle("GET /containers/json", hang)
            await agent.apps.hosted.hosted_apps()
            answer = await until_status(agent, 503)
            assert "does not answer in time" in answer.json["message"]

            go_on.set()
            await until_status(agent, 200)


@pytest.mark.slow
async def test_an_engine_that_ends_is_reported(tmp_path: Path) -> None:
    async with fake_docker_api() as fake:
        let_events_go_on(fake)
        async with running_agent(tmp_path, fake.url) as agent:
            await until_status(agent, 200)
            fake.vanish()
            fake.hang_up()

            answer = await until_status(agent, 503)

    assert "the container engine" in answer.json["message"]
