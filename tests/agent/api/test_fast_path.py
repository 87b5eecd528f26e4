"""One app, asked for past aiohttp's tasks: what takes the ordinary way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from structlog.testing import LogCapture

from agent.api.routes import AppsApi
from agent.engine import DockerEngine
from httpd.auth import Caller
from httpd.instant import Question
from tests.support.agent.running_apps import running_apps
from tests.support.daemons import NO_ENGINE

READER = Caller("reader", frozenset({"read"}))


@asynccontextmanager
async def hosting_nothing(folder: Path) -> AsyncIterator[AppsApi]:
    """Give an API of an agent that hosts nothing."""
    engine = DockerEngine(url=NO_ENGINE, timeout_seconds=1)
    async with running_apps(folder, engine, LogCapture()) as apps:
        yield AppsApi(apps=apps)


def question(name: str, caller: Caller = READER) -> Question:
    return Question(caller, "127.0.0.1", name, CIMultiDictProxy(CIMultiDict()), b"")


async def test_what_is_the_name_of_no_app_is_no_path_here_either(tmp_path: Path) -> None:
    async with hosting_nothing(tmp_path) as api:
        for name in ("x", "UPPER", "_x", "web-1Z", "x" * 64):
            assert api.get_at_once(question(name)) is None
        assert api.get_at_once(question("web-1", Caller("writer", frozenset({"write"})))) is None


@pytest.mark.parametrize("name", ["xx", "web-1", "0.a_b", "x" * 63])
async def test_the_name_of_an_app_is_looked_up(tmp_path: Path, name: str) -> None:
    async with hosting_nothing(tmp_path) as api:
        reply = api.get_at_once(question(name))
        assert reply is not None
        assert reply.after is not None
        reply.after.cancel()
        await asyncio.wait([reply.after])
