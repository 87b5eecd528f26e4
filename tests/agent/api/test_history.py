"""The history over HTTP: what is answered, and to whom."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp import AiohttpClient
from structlog.testing import LogCapture

from agent.model import AppChanges, NewApp
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS, OPERATOR, READER, application
from tests.support.agent.running_apps import ASKER, AskedApps, running_apps

pytestmark = pytest.mark.slow

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)


@dataclass
class Api:
    """The API of an agent with the app ``web``, which has two revisions."""

    apps: AskedApps
    client: TestClient[web.Request, web.Application]

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, key: str = OPERATOR
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"/v1/apps{path}"
        response = await self.client.request(method, url, data=body, headers=headers)
        return response.status, await response.json()


@pytest.fixture
async def api(tmp_path: Path, aiohttp_client: AiohttpClient) -> AsyncIterator[Api]:
    log = LogCapture()
    bound = structlog.wrap_logger(None, processors=[log])
    async with running_apps(tmp_path, FakeEngine(), log, defaults=AT_ONCE) as apps:
        await apps.create(
            NewApp(name="web", image=IMAGE, env={"TOKEN": "s3cret"}, command=("serve", "s3cret")),
            ASKER,
        )
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        yield Api(apps, await aiohttp_client(application(apps, new_metrics(), bound)))


async def test_the_history_is_the_newest_first_and_hides_the_environment_from_readers(
    api: Api,
) -> None:
    status, history = await api.ask("GET", "/web/history")
    _, hidden = await api.ask("GET", "/web/history", key=READER)

    assert status == 200
    assert [each["revision"] for each in history] == [2, 1]
    newest = history[0]
    assert (newest["image"], newest["image_id"], newest["digest"]) == (OTHER_IMAGE, "i2", None)
    assert (newest["by"], newest["operation"]) == ("operator", "update")
    assert (newest["changed"], newest["rollback_to"]) == (["image", "image_id"], None)
    assert [each["env"] for each in history] == [{"TOKEN": "s3cret"}] * 2
    assert [each["env"] for each in hidden] == [{"TOKEN": None}] * 2
    assert [each["command"] for each in hidden] == [None, None]
    unseen = {"env": None, "command": None}
    assert [{**each, **unseen} for each in hidden] == [{**each, **unseen} for each in history]


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"revision": 1}'])
async def test_a_rollback_without_a_number_goes_to_the_revision_before(
    api: Api, body: bytes | None
) -> None:
    status, record = await api.ask("PUT", "/web/rollback", body)

    assert status == 200
    assert (record["image"], record["revision"]) == (IMAGE, 3)


async def test_a_body_that_names_no_revision_is_400(api: Api) -> None:
    for body, named in (
        (b'{"revision": 0}', "revision"),
        (b'{"revision": "1"}', "revision"),
        (b'{"revision": 1.0}', "revision"),
        (b'{"revision": true}', "revision"),
        (b'{"revision": null}', "revision"),
        (b'{"version": 1}', "version"),
        (b'{"revision": 1, "revision": 1}', "revision"),
        (b"[]", "object"),
        (b"1", "object"),
        (b" ", "JSON"),
    ):
        status, answer = await api.ask("PUT", "/web/rollback", body)
        _, record = await api.ask("GET", "/web")

        assert (status, record["revision"]) == (400, 2), body
        assert named in answer["message"], body


async def test_what_is_not_there_or_not_allowed_is_said_to_be_so(api: Api) -> None:
    unknown = await api.ask("PUT", "/web/rollback", b'{"revision": 9}')
    no_app = await api.ask("PUT", "/shop/rollback", b"{}")
    no_history = await api.ask("GET", "/shop/history")
    reader = await api.ask("PUT", "/web/rollback", b"{}", key=READER)
    odd = await api.ask("GET", "/web/history?limit=1")
    await api.apps.create(NewApp(name="new", image=IMAGE), ASKER)
    first = await api.ask("PUT", "/new/rollback")

    assert [unknown[0], no_app[0], no_history[0], reader[0], odd[0]] == [404, 404, 404, 403, 400]
    assert "GET /v1/apps/web/history" in unknown[1]["message"]
    assert first[0] == 409
    assert "GET /v1/apps/new/history" in first[1]["message"]
