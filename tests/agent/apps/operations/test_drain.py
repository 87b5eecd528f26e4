"""An app that drains before a stop: its label goes, and it runs on for ``drain_seconds``."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppBusy
from agent.apps.requests import Stop
from agent.journal import OperationKind
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

AN_HOUR = 3600
AT_LAST = replace(ASKER, drains=False)
OTHER = AppChanges(env={"A": "1"})


@asynccontextmanager
async def apps_of(folder: Path, engine: FakeEngine) -> AsyncIterator[AskedApps]:
    async with running_apps(folder, engine, LogCapture(), defaults=AT_ONCE) as apps:
        yield apps


@asynccontextmanager
async def serving_app(folder: Path, engine: FakeEngine) -> AsyncIterator[AskedApps]:
    """Yield the apps with one that serves and takes an hour to drain."""
    async with apps_of(folder, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, drain_seconds=AN_HOUR), ASKER)
        await async_until(lambda: serves(apps))
        yield apps


async def serves(apps: AskedApps) -> bool:
    return [each.serving for each in (await apps.hosted.hosted_apps()).apps] == [True]


async def is_draining(apps: AskedApps) -> bool:
    progress = (await apps.queries.one("web")).progress
    return progress is not None and progress.step == "draining"


async def draining(apps: AskedApps, change: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Begin a change; return it once the app drains."""
    begun = asyncio.create_task(change)
    await async_until(lambda: is_draining(apps), within=20)
    assert not await serves(apps)
    assert (await apps.queries.one("web")).desired == "running"
    return begun


@pytest.mark.parametrize("operation", ["stop", "restart", "rebuild", "update", "rollback"])
async def test_what_stops_an_app_waits_without_its_label_until_somebody_ends_the_wait(
    tmp_path: Path, operation: OperationKind
) -> None:
    engine = FakeEngine()
    async with serving_app(tmp_path, engine) as apps:
        if operation == "rollback":
            await apps.update("web", AppChanges(env={"A": "0"}), AT_LAST)
        changes = {
            "stop": lambda requester: apps.stop("web", requester),
            "restart": lambda requester: apps.restart("web", requester),
            "rebuild": lambda requester: apps.rebuild("web", requester),
            "update": lambda requester: apps.update("web", OTHER, requester),
            "rollback": lambda requester: apps.rollback("web", None, requester),
        }
        before = await apps.queries.one("web")
        begun = await draining(apps, changes[operation](ASKER))
        joined = asyncio.create_task(changes[operation](ASKER))
        await asyncio.sleep(0)
        assert engine.state.containers[before.container_id or ""].state == "running"

        last = await changes[operation](AT_LAST)

        assert list(await asyncio.gather(begun, joined)) == [last, last]
        assert last.state == ("exited" if operation == "stop" else "running")
        events = [each.action for each in await apps.events("web") if each.action == operation]
        assert len(events) == (2 if operation == "update" and last.revision == 3 else 1)


async def test_a_deletion_drains_and_the_repeated_one_ends_with_it(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with serving_app(tmp_path, engine) as apps:
        begun = await draining(apps, apps.delete("web", ASKER))

        assert await apps.delete("web", AT_LAST) is None
        assert await begun is None
        assert engine.state.containers == {}


async def test_another_change_waits_for_the_drain_and_ends_it_if_it_says_so(
    tmp_path: Path,
) -> None:
    async with serving_app(tmp_path, FakeEngine()) as apps:
        begun = await draining(apps, apps.restart("web", ASKER))

        with pytest.raises(AppBusy, match="is being restarted"):
            await apps.update("web", OTHER, replace(ASKER, wait_seconds=0))
        assert not begun.done()
        assert (await apps.update("web", OTHER, AT_LAST)).env == {"A": "1"}
        await begun


async def test_a_change_that_asks_for_no_drain_waits_for_none(tmp_path: Path) -> None:
    async with serving_app(tmp_path, FakeEngine()) as apps:
        assert (await apps.stop("web", AT_LAST)).state == "exited"


async def test_a_dry_run_waits_for_no_drain_and_ends_none(tmp_path: Path) -> None:
    async with serving_app(tmp_path, FakeEngine()) as apps:
        plan = await apps.plan(Stop("web"), ASKER)

        assert plan.app is not None
        assert plan.app.state == "exited"
        assert await serves(apps)


@pytest.mark.parametrize("operation", ["stop", "restart", "update"])
async def test_an_agent_that_ends_does_not_wait_and_the_next_one_goes_on(
    tmp_path: Path, operation: OperationKind
) -> None:
    engine = FakeEngine()
    async with serving_app(tmp_path, engine) as apps:
        changes = {
            "stop": apps.stop("web", ASKER),
            "restart": apps.restart("web", ASKER),
            "update": apps.update("web", OTHER, ASKER),
        }
        begun = await draining(apps, changes.pop(operation))
        for other in changes.values():
            other.close()
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert "its next start" in str(begun.exception())

    async with apps_of(tmp_path, engine) as apps:
        await async_until(lambda: is_draining(apps), within=20)
        assert not await serves(apps)
        first = engine.state.containers["c1"]
        assert first.state == "running"

        if operation == "update":
            await apps.update("web", AppChanges(description="x"), AT_LAST)
        else:
            change = apps.stop if operation == "stop" else apps.restart
            await change("web", AT_LAST)

        record = await apps.queries.one("web")
        assert record.state == ("exited" if operation == "stop" else "running")
        assert record.env == ({"A": "1"} if operation == "update" else {})
        assert ("c1" in engine.state.containers) == (operation != "update")
        done = [each.outcome for each in await apps.events("web") if each.action == operation]
        assert done[0] == "done"
