"""A client that reads many logs does not keep others from reading theirs."""

import asyncio
from contextlib import AsyncExitStack
from http import HTTPStatus

import pytest
from aiohttp import ClientSession, ClientTimeout

from agent.api.streams import MAX_STREAMS_PER_KEY
from tests.support.agent.in_process import OPERATOR, READER, InProcessAgent
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


async def test_a_reader_of_many_logs_is_bounded_and_pulls_and_others_go_on(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    url = f"{agent.base_url}/v1/apps/{record['name']}/logs?follow=true"
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(ClientSession(timeout=ClientTimeout(60)))

        async def follow(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            response = await stack.enter_async_context(session.get(url, headers=headers))
            return response.status

        read = await asyncio.gather(*(follow(READER) for _ in range(MAX_STREAMS_PER_KEY)))
        assert set(read) == {HTTPStatus.OK}
        assert await follow(READER) == HTTPStatus.SERVICE_UNAVAILABLE
        assert await follow(OPERATOR) == HTTPStatus.OK
        unknown = {"name": agent.name(), "image": "127.0.0.1:9/none:1"}
        assert (await agent.ask("POST", "", unknown)).status == HTTPStatus.BAD_GATEWAY

    async def again() -> bool:
        async with ClientSession() as session:
            headers = {"Authorization": f"Bearer {READER}"}
            async with session.get(url.partition("?")[0], headers=headers) as response:
                return response.status == HTTPStatus.OK

    await async_until(again)
