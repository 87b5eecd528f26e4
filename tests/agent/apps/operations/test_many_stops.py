"""Many apps that do not heed SIGTERM are stopped at once, beside other operations."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent.in_process import InProcessAgent, async_until, in_process_agent

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

APPS = 60
AT_A_TIME = 8
STOP_SECONDS = 10
# With a share of the threads only, the last ones would wait for longer than a stop may take.
TIMEOUT_SECONDS = 15


async def create_all(agent: InProcessAgent, image: str) -> list[dict[str, Any]]:
    turns = asyncio.Semaphore(AT_A_TIME)

    async def create() -> dict[str, Any]:
        async with turns:
            return await agent.create(image, stop_seconds=STOP_SECONDS)

    return await asyncio.gather(*(create() for _ in range(APPS)))


async def test_each_stop_of_sixty_at_once_is_done_and_a_start_beside_them_does_not_wait(
    tmp_path: Path, engine_url: str, stubborn_image: str, busybox_image: str
) -> None:
    async with in_process_agent(
        tmp_path, engine_url, timeout_seconds=TIMEOUT_SECONDS, stop_seconds=0, settle_seconds=0
    ) as agent:
        other = await agent.create(busybox_image)
        await agent.ask("PUT", f"/{other['name']}/stop")
        records = await create_all(agent, stubborn_image)

        paths = [f"/{record['name']}/stop" for record in records]
        stops = [asyncio.create_task(agent.ask("PUT", path)) for path in paths]

        async def all_busy() -> bool:
            views = {view.name: view for view in await agent.apps.all()}
            return all(views[record["name"]].progress is not None for record in records)

        await async_until(all_busy)
        started = await agent.ask("PUT", f"/{other['name']}/start")
        assert started.status == 200
        assert not any(stop.done() for stop in stops)

        answers = await asyncio.gather(*stops)
        assert {answer.status for answer in answers} == {200}
        assert {answer.json["exit_code"] for answer in answers} == {137}
