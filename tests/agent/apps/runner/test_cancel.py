"""DELETE, stop and the end of the agent end an operation that pulls an image."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppNotFound, OperationCancelled
from agent.apps.records import AppView
from agent.engine.errors import EngineUnavailable
from agent.engine.models import Image, PullProgress
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.image_registry import stalling_image_registry
from tests.support.agent.in_process import in_process_agent
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

REMOTE = "app:remote"
BACKGROUND = replace(ASKER, respond_async=True)
WITHOUT_WAITING = replace(ASKER, wait_seconds=0)
NEW = NewApp(name="web", image=REMOTE)
Action = Callable[[AskedApps], Awaitable[object]]


class HeldPullsEngine(FakeEngine):
    """An engine whose pulls do not end before they may."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls = 0
        self.pulling = 0
        self.may_end = asyncio.Event()

    async def image(self, reference: str) -> Image | None:
        if reference == REMOTE:
            known = await super().image(IMAGE) if self.may_end.is_set() else None
            return known and replace(known, local=False)
        known = await super().image(reference)
        return known and replace(known, local=self.pulls == 0)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del reference
        self.pulls += 1
        self.pulling += 1
        try:
            progress(PullProgress(done_bytes=0, total_bytes=1))
            await self.may_end.wait()
        finally:
            self.pulling -= 1

    async def until_pulling(self) -> None:
        async def pulling() -> bool:
            return self.pulling > 0

        await async_until(pulling)


async def create(apps: AskedApps) -> AppView:
    return await apps.create(NEW, ASKER)


@pytest.mark.slow
async def test_a_delete_ends_a_creation_that_pulls_and_nothing_of_it_is_left(
    tmp_path: Path,
) -> None:
    engine, log = HeldPullsEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        creation = asyncio.create_task(create(apps))
        await engine.until_pulling()

        assert await apps.delete("web", WITHOUT_WAITING) is None

        with pytest.raises(OperationCancelled, match=r"create of app `web` .* by a delete"):
            await creation
        assert await apps.queries.all() == []
        assert (engine.pulling, engine.state.volumes) == (0, {})
    assert "operation cancelled" in [each["event"] for each in log.entries]


@pytest.mark.slow
async def test_two_that_end_a_pull_at_the_same_time_end_it_as_one_does(tmp_path: Path) -> None:
    engine = HeldPullsEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        creation = asyncio.create_task(create(apps))
        await engine.until_pulling()

        deletions = [apps.delete("web", ASKER) for _ in range(2)]
        await asyncio.gather(*deletions, return_exceptions=True)  # the second may find no app

        with pytest.raises(OperationCancelled, match=r"create of app `web` .* by a delete"):
            await creation
        assert await apps.queries.all() == []


@pytest.mark.parametrize("ends", ["delete", "stop"])
async def test_a_creation_in_the_background_that_is_ended_is_not_kept_as_failed(
    tmp_path: Path, ends: str
) -> None:
    engine = HeldPullsEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NEW, BACKGROUND)
        await engine.until_pulling()

        if ends == "delete":
            assert await apps.delete("web", ASKER) is None
        else:
            with pytest.raises(AppNotFound, match="its creation was cancelled"):
                await apps.stop("web", ASKER)

        assert await apps.queries.all() == []
        assert engine.pulling == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda apps: apps.update("web", AppChanges(image=REMOTE), ASKER),
        lambda apps: apps.update("web", AppChanges(image=REMOTE), BACKGROUND),
    ],
)
async def test_a_stop_ends_a_change_that_pulls_and_the_app_is_as_it_was_but_stopped(
    tmp_path: Path, change: Action
) -> None:
    engine = HeldPullsEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        before = await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        update = asyncio.ensure_future(change(apps))
        await engine.until_pulling()

        stopped = await apps.stop("web", ASKER)

        (outcome,) = await asyncio.gather(update, return_exceptions=True)
        assert isinstance(outcome, OperationCancelled | AppView)
        assert (stopped.state, stopped.desired) == ("exited", "stopped")
        assert (stopped.image, stopped.container_id) == (IMAGE, before.container_id)
        assert stopped.message is not None
        assert "cancelled" in stopped.message
        assert engine.pulling == 0


@pytest.mark.slow
async def test_a_delete_ends_all_changes_that_wait_to_pull_before_it(tmp_path: Path) -> None:
    engine = HeldPullsEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        change = AppChanges(image=REMOTE)
        updates = [asyncio.ensure_future(apps.update("web", change, ASKER)) for _ in range(3)]
        await engine.until_pulling()

        assert await apps.delete("web", ASKER) is None

        outcomes = await asyncio.gather(*updates, return_exceptions=True)
        assert {type(each) for each in outcomes} == {OperationCancelled}
        assert engine.state.containers == {}


@pytest.mark.slow
async def test_a_change_that_pulls_nothing_is_done_before_a_stop_that_comes_meanwhile(
    tmp_path: Path,
) -> None:
    looked, may_go_on = asyncio.Event(), asyncio.Event()

    class HeldImageEngine(FakeEngine):
        async def image(self, reference: str) -> Image | None:
            if reference == OTHER_IMAGE:
                looked.set()
                await may_go_on.wait()
            return await super().image(reference)

    async with running_apps(tmp_path, HeldImageEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        change = AppChanges(image=OTHER_IMAGE)
        update = asyncio.create_task(apps.update("web", change, ASKER))
        await looked.wait()
        stop = asyncio.create_task(apps.stop("web", ASKER))
        await asyncio.sleep(0)
        may_go_on.set()

        assert (await update).image == OTHER_IMAGE
        assert (await stop).state == "exited"


@pytest.mark.slow
async def test_another_app_that_waits_for_the_same_image_goes_on(tmp_path: Path) -> None:
    engine = HeldPullsEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NEW, BACKGROUND)
        other = asyncio.create_task(apps.create(NewApp(name="other", image=REMOTE), ASKER))
        await engine.until_pulling()

        async def both() -> bool:
            return [each.state for each in await apps.queries.all()] == ["pulling", "pulling"]

        await async_until(both)
        await apps.delete("web", ASKER)
        engine.may_end.set()

        assert (await other).state == "running"
        assert engine.pulls == 1


@pytest.mark.slow
async def test_an_agent_that_stops_ends_pulls_at_once_and_recovers_what_it_promised(
    tmp_path: Path,
) -> None:
    engine, log = HeldPullsEngine(), LogCapture()
    other = NewApp(name="other", image=REMOTE)
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE, drain_seconds=300) as apps:
        waited_for = asyncio.create_task(apps.create(other, ASKER))
        await apps.create(NEW, BACKGROUND)
        await engine.until_pulling()

        apps.runner.end_pulls()

        with pytest.raises(EngineUnavailable, match="the agent is stopping"):
            await waited_for
        with pytest.raises(EngineUnavailable, match="the agent is stopping"):
            await apps.create(NewApp(name="third", image=REMOTE), ASKER)
    assert engine.pulling == 0
    reported = [each["event"] for each in log.entries]
    assert reported.count("operation interrupted, it is recovered at the next start") == 3

    engine.may_end.set()
    async with running_apps(tmp_path, engine, LogCapture(), adopt=True, defaults=AT_ONCE) as apps:

        async def settled() -> bool:
            return all(each.progress is None for each in await apps.queries.all())

        await async_until(settled)
        assert [(each.name, each.state) for each in await apps.queries.all()] == [
            ("web", "running")
        ]


@pytest.mark.real
async def test_a_creation_whose_image_server_says_nothing_is_ended_by_a_delete(
    tmp_path: Path, engine_url: str
) -> None:
    async with (
        stalling_image_registry() as server,
        in_process_agent(tmp_path, engine_url) as agent,
    ):
        name = agent.name()
        body: dict[str, Any] = {"name": name, "image": f"{server}/app"}
        begun = await agent.ask("POST", "", body, headers={"Prefer": "respond-async"})
        await agent.until(name, state="pulling")

        deleted = await agent.ask("DELETE", f"/{name}")

        assert (begun.status, deleted.status) == (202, 200)
        assert (await agent.ask("GET", f"/{name}")).status == 404


@pytest.mark.real
async def test_a_client_that_waits_for_a_pull_is_answered_when_the_agent_stops(
    tmp_path: Path, engine_url: str
) -> None:
    async with stalling_image_registry() as server, AsyncExitStack() as stack:
        agent = await stack.enter_async_context(in_process_agent(tmp_path, engine_url, keep=True))
        body = {"name": agent.name(), "image": f"{server}/app"}
        creation = asyncio.create_task(agent.ask("POST", "", body))

        async def pulling() -> bool:
            return [each.state for each in await agent.apps.queries.all()] == ["pulling"]

        await async_until(pulling)
        await stack.aclose()

        assert (await creation).status == 503
