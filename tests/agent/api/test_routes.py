"""Which paths name an app."""

from pathlib import Path

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from agent.api.routes import AppsApi
from agent.apps import Apps
from agent.engine import DockerEngine
from agent.state.store import Store
from tests.support.agent.in_process import DEFAULTS
from tests.support.daemons import NO_ENGINE


async def is_a_path(folder: Path, name: str) -> bool:
    """Return whether GET of this app's path has a handler."""
    apps = Apps(
        store=Store(folder / "agent.db"),
        engine=DockerEngine(url=NO_ENGINE, timeout_seconds=1),
        defaults=DEFAULTS,
        log=structlog.get_logger(),
        on_change=lambda: None,
        clock=lambda: 0.0,
    )
    application = web.Application()
    application.add_routes(AppsApi(apps=apps).routes())
    found = await application.router.resolve(make_mocked_request("GET", f"/v1/apps/{name}"))
    return found.http_exception is None


@pytest.mark.parametrize("name", ["x", "UPPER", "_x", "web-1Z", "x" * 64])
async def test_what_is_the_name_of_no_app_is_no_path(tmp_path: Path, name: str) -> None:
    assert not await is_a_path(tmp_path, name)


@pytest.mark.parametrize("name", ["xx", "web-1", "0.a_b", "x" * 63])
async def test_the_name_of_an_app_is_a_path(tmp_path: Path, name: str) -> None:
    assert await is_a_path(tmp_path, name)
