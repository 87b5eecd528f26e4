"""Many who read the same at once share one answer, so that they do not slow changes."""

import asyncio
from pathlib import Path

import pytest
import structlog
from aiohttp import TCPConnector
from pytest_aiohttp import AiohttpClient
from structlog.testing import LogCapture

from agent.model import NewApp
from httpd.metrics import new_metrics
from tests.support.agent.engines.counting_engine import CountingEngine
from tests.support.agent.engines.fake_engine import IMAGE
from tests.support.agent.in_process import OPERATOR, READER, application
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

READERS = 200
READ_SECONDS = 0.01


@pytest.mark.slow
async def test_those_who_ask_the_same_at_the_same_time_share_an_answer(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    engine, log = CountingEngine(seconds=READ_SECONDS), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        app = application(apps, new_metrics(), structlog.wrap_logger(None, processors=[log]))
        client = await aiohttp_client(app, connector=TCPConnector(limit=0))
        await apps.create(NewApp(name="web", image=IMAGE, env={"A": "secret"}), ASKER)

        async def read(path: str, key: str) -> str:
            headers = {"Authorization": f"Bearer {key}"}
            async with client.get(f"/v1/apps{path}", headers=headers) as answer:
                assert answer.status == 200
                return await answer.text()

        for path in ("", "/web"):
            before = engine.calls.total()
            keys = [OPERATOR, READER] * (READERS // 2)
            answers = await asyncio.gather(*(read(path, key) for key in keys))
            assert engine.calls.total() - before < READERS / 4
            # A key that may only read shares nothing with one that may write.
            assert [("secret" in each) for each in answers] == [True, False] * (READERS // 2)

        for path in ("/web/processes", "/web/stats"):
            before = engine.calls.total()
            assert (
                len(await asyncio.gather(*(read(path, READER) for _ in range(READERS)))) == READERS
            )
            assert engine.calls.total() - before < READERS / 4


@pytest.mark.slow
async def test_an_answer_is_never_of_before_the_change_that_the_reader_made(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    engine, log = CountingEngine(seconds=READ_SECONDS), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        app = application(apps, new_metrics(), structlog.wrap_logger(None, processors=[log]))
        client = await aiohttp_client(app, connector=TCPConnector(limit=0))
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        headers = {"Authorization": f"Bearer {OPERATOR}"}

        async def state() -> str:
            async with client.get("/v1/apps/web", headers=headers) as answer:
                return str((await answer.json())["state"])

        reading = [asyncio.create_task(state()) for _ in range(READERS)]
        for change, then in ((apps.stop, "exited"), (apps.start, "running")) * 3:
            await change("web", ASKER)
            assert await state() == then
        await asyncio.gather(*reading)


@pytest.mark.slow
async def test_a_list_asks_the_engine_once_however_many_apps_there_are(tmp_path: Path) -> None:
    engine, log = CountingEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        for name in ("web", "shop", "blog"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        await apps.stop("shop", ASKER)
        before = engine.calls.copy()

        assert len(await apps.queries.all()) == 3

        assert engine.calls - before == {"containers": 1}
