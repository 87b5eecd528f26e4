"""Which paths name an app."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import LogCapture

from agent.api.routes import AppsApi
from agent.engine.engine import Engine
from tests.support.agent.running_apps import running_apps
from tests.support.daemons import NO_ENGINE


async def paths_among(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the names of which GET of the app's path has a handler."""
    engine = Engine(url=NO_ENGINE, timeout_seconds=1)
    async with running_apps(folder, engine, LogCapture()) as apps:
        application = web.Application()
        application.add_routes(
            AppsApi(apps=apps, log=structlog.get_logger(), max_connections=10).routes()
        )
        requests = [make_mocked_request("GET", f"/v1/apps/{name}") for name in names]
        found = [await application.router.resolve(request) for request in requests]
    return [name for name, match in zip(names, found, strict=True) if match.http_exception is None]


@pytest.mark.slow
async def test_only_what_can_be_the_name_of_an_app_is_a_path(tmp_path: Path) -> None:
    names = ["xx", "web-1", "0.a_b", "x" * 63]
    others = ["x", "UPPER", "_x", "web-1Z", "x" * 64]

    assert await paths_among(tmp_path, [*names, *others]) == names
