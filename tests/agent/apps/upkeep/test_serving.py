"""Which apps serve: the label comes when they are ready, and goes for a known reason alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import LogCapture

from agent.apps.errors import InvalidLabel
from agent.apps.upkeep.serving import SERVING_FILE, Serving
from agent.model import App, HealthCheck, NewApp
from tests.support.agent.apps.hosts import context_of
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

COMMAND = HealthCheck(command=("true",), interval_seconds=1, retries=1)


async def serves(apps: AskedApps) -> bool:
    return [each.serving for each in (await apps.hosted.hosted_apps()).apps] == [True]


async def serves_not(apps: AskedApps) -> bool:
    return not await serves(apps)


@asynccontextmanager
async def apps_of(folder: Path, engine: FakeEngine, settle: float = 0) -> AsyncIterator[AskedApps]:
    defaults = replace(AT_ONCE, settle_seconds=settle)
    async with running_apps(folder, engine, LogCapture(), defaults=defaults) as apps:
        yield apps


async def test_an_app_serves_while_its_check_passes(tmp_path: Path) -> None:
    engine, results = FakeEngine(), [1]

    async def check(_container_id: str) -> int:
        return results[0]

    engine.check = check
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=COMMAND), ASKER)
        assert not await serves(apps)
        results[0] = 0
        await async_until(lambda: serves(apps), within=20)

        results[0] = 1
        await async_until(lambda: serves_not(apps), within=20)


async def test_an_app_without_a_check_serves_until_it_ends_or_is_paused(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await async_until(lambda: serves(apps), within=20)
        (container,) = engine.state.containers.values()

        container.state = "paused"
        assert not await serves(apps)
        container.state = "running"
        assert await serves(apps)

        # The engine has started it again at once: it has not run for long enough.
        engine.happen("die", container, exit_code=1)
        engine.happen("start", container)
        await async_until(lambda: serves_not(apps), within=20)


async def test_a_starting_agent_keeps_the_label_until_the_first_check(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=COMMAND), ASKER)
        await async_until(lambda: serves(apps), within=20)

    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def check(_container_id: str) -> int:
        return await asyncio.shield(result)

    engine.check = check
    async with apps_of(tmp_path, engine) as apps:
        assert await serves(apps)
        result.set_result(1)
        await async_until(lambda: serves_not(apps), within=20)


async def test_a_starting_agent_sends_no_label_of_a_container_that_has_restarted(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=COMMAND), ASKER)
        await async_until(lambda: serves(apps), within=20)
    kept = json.loads((tmp_path / SERVING_FILE).read_bytes())
    kept["web"]["started_at"] -= 60
    (tmp_path / SERVING_FILE).write_text(json.dumps(kept))

    async def check(_container_id: str) -> int:
        await asyncio.Event().wait()
        return 0

    engine.check = check
    async with apps_of(tmp_path, engine) as apps:
        await async_until(lambda: serves_not(apps), within=20)


async def test_without_the_engine_the_label_stays_unless_the_check_over_http_fails(
    tmp_path: Path,
) -> None:
    status = 200

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status)

    server = web.Application()
    server.router.add_get("/healthz", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    checked = HealthCheck(path="/healthz", interval_seconds=1, retries=1)
    apps = [
        App(
            name=name,
            image=IMAGE,
            ssh_port=1,
            http_port=port,
            cpu=1,
            memory=6,
            created_at="2026-01-31T12:00:00Z",
            container_id=f"c-{name}",
            health=check,
        )
        for name, check in (("bare", None), ("web", checked))
    ]
    kept = {
        app.name: {"container_id": app.container_id, "started_at": 1.0, "address": "127.0.0.1"}
        for app in apps
    }
    (tmp_path / SERVING_FILE).write_text(json.dumps(kept))
    changed = asyncio.Event()
    context = context_of(FakeEngine(), tmp_path, on_change=changed.set)
    serving = Serving(context)

    assert sorted(serving.names(apps, None)) == ["bare", "web"]
    status = 503
    await asyncio.wait_for(changed.wait(), 20)
    assert sorted(serving.names(apps, None)) == ["bare"]
    changed.clear()
    status = 200
    await asyncio.wait_for(changed.wait(), 20)
    assert sorted(serving.names(apps, None)) == ["bare", "web"]

    assert sorted(serving.names(apps, {})) == []
    await serving.close()
    await context.health.checker.http.close()
    await runner.cleanup()


async def test_an_operator_sets_no_label_that_the_agent_makes(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)

        with pytest.raises(InvalidLabel, match="the agent makes labels `serving:` itself"):
            await apps.add_label("web", "serving:shop:80", ASKER)
