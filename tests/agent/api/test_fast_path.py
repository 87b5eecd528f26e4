"""One app, asked for past aiohttp's tasks: what takes the ordinary way."""

import asyncio
from pathlib import Path

import pytest
import structlog
from multidict import CIMultiDict, CIMultiDictProxy

from agent.api.routes import AppsApi
from agent.apps import Apps
from agent.engine import DockerEngine
from agent.state.store import Store
from httpd.auth import Caller
from httpd.instant import Question
from tests.support.agent.in_process import DEFAULTS
from tests.support.daemons import NO_ENGINE

READER = Caller("reader", frozenset({"read"}))


def api(folder: Path) -> AppsApi:
    """Make an API of an agent that hosts nothing."""
    return AppsApi(
        apps=Apps(
            store=Store(folder / "agent.db"),
            engine=DockerEngine(url=NO_ENGINE, timeout_seconds=1),
            defaults=DEFAULTS,
            log=structlog.get_logger(),
            on_change=lambda: None,
            clock=lambda: 0.0,
        )
    )


def question(name: str, caller: Caller = READER) -> Question:
    return Question(caller, "127.0.0.1", name, CIMultiDictProxy(CIMultiDict()), b"")


async def test_what_is_the_name_of_no_app_is_no_path_here_either(tmp_path: Path) -> None:
    apps = api(tmp_path)
    for name in ("x", "UPPER", "_x", "web-1Z", "x" * 64):
        assert apps.get_at_once(question(name)) is None
    assert apps.get_at_once(question("web-1", Caller("writer", frozenset({"write"})))) is None


@pytest.mark.parametrize("name", ["xx", "web-1", "0.a_b", "x" * 63])
async def test_the_name_of_an_app_is_looked_up(tmp_path: Path, name: str) -> None:
    reply = api(tmp_path).get_at_once(question(name))
    assert reply is not None
    assert reply.after is not None
    reply.after.cancel()
    await asyncio.wait([reply.after])
