from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import StartAgent
from tests.support.cli.fleet_of_three import Fleet
from tests.support.cli.process import CommandLine
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import InProcessRegistry


async def page(request: web.Request) -> web.Response:
    """Answer as an app that has one page, and nothing for a check."""
    return web.Response(status=200 if request.path == "/" else 404)


@pytest.fixture
async def fleet(
    rollcall: Rollcall,
    registry: InProcessRegistry,
    http_server: HttpServer,
    fake_agent: StartAgent,
) -> Fleet:
    """Return three hosts whose apps answer `/` and no other path."""
    port = urlsplit(await http_server(page)).port
    assert port is not None
    agents = [await fake_agent() for _ in range(3)]
    for number, agent in enumerate(agents):
        await registry.post(f"web-{number}", kv={"agent.url": agent.url})
    return Fleet(CommandLine(rollcall.contexts.parent), agents, port)
