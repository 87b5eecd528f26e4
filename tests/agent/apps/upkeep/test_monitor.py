"""Apps are checked as their records ask, over an engine in memory."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from agent.apps.health import MOST_CHECKS, Finding, Tally
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.apps.checked_apps import (
    CHECK,
    NEW,
    Program,
    apps_of,
    replace_check,
    until_healthy,
)
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER
from tests.support.daemons import FreePort
from tests.support.registry.fake_servers import one_handler_app
from tests.support.waiting import async_until

SLOW_CHECK = HealthCheck(path="/", interval_seconds=10, retries=3)


def failing(tally: Tally, *moments: float) -> list[str]:
    """Let the check fail at these times; return the health after each."""
    found: list[str] = []
    for moment in moments:
        tally.add("rejected", moment)
        found.append(tally.finding.health)
    return found


def test_so_many_failures_in_a_row_are_unhealthy_and_one_success_is_healthy() -> None:
    tally = Tally(SLOW_CHECK, Finding(), now=0)

    assert failing(tally, 10, 20, 30) == ["starting", "starting", "unhealthy"]
    assert tally.finding.reason == "rejected"
    tally.add(None, 40)
    assert tally.finding == Finding(health="healthy")
    assert failing(tally, 50, 60) == ["healthy", "healthy"]
    tally.add(None, 70)
    assert failing(tally, 80, 90, 100) == ["healthy", "healthy", "unhealthy"]


def test_failures_in_the_time_of_the_start_do_not_count_unless_it_was_healthy_before() -> None:
    check = HealthCheck(path="/", interval_seconds=10, retries=1, start_seconds=60)

    assert failing(Tally(check, Finding(), now=0), 10, 59.9, 60) == [
        "starting",
        "starting",
        "unhealthy",
    ]
    tally = Tally(check, Finding(), now=0)
    tally.add(None, 5)
    assert failing(tally, 15) == ["unhealthy"]


def test_a_starting_app_is_checked_sooner_and_any_other_at_its_interval() -> None:
    tally = Tally(SLOW_CHECK, Finding(), now=0)

    assert [tally.pause(moment) for moment in (0, 1, 3, 7, 9)] == [1, 2, 4, 8, 10]
    assert [tally.pause(moment) for moment in (10, 20)] == [10, 10]
    tally.add(None, 1)
    assert tally.pause(1) == 10


@pytest.mark.parametrize("start_seconds", [0, 100])
def test_what_is_known_of_a_container_counts_from_the_beginning(start_seconds: int) -> None:
    check = HealthCheck(path="/", interval_seconds=10, retries=1, start_seconds=start_seconds)
    tally = Tally(check, Finding(health="healthy"), now=0)

    assert tally.pause(0) == 10
    assert failing(tally, 10) == ["unhealthy"]


@pytest.mark.slow
async def test_a_check_is_added_changed_and_taken_away_without_another_container(
    tmp_path: Path,
) -> None:
    engine, steps = FakeEngine(), list[str]()

    async def note(step: str) -> None:
        steps.append(step)

    async with apps_of(tmp_path, engine) as apps:
        created = await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        assert created.healthy is None
        engine.at_step = note

        await apps.update("web", AppChanges(health=CHECK), ASKER)
        await until_healthy(apps, is_so=True)
        await apps.update("web", AppChanges(health=replace_check(retries=1)), ASKER)
        engine.check = Program(1)
        await until_healthy(apps, is_so=False)
        engine.check = Program(0)
        seldom = replace_check(interval_seconds=3600)  # but soon where nothing is known yet
        await apps.update("web", AppChanges(health=seldom), ASKER)
        await until_healthy(apps, is_so=True)
        without = await apps.update("web", AppChanges(health=None), ASKER)

        assert (without.healthy, without.container_id) == (None, created.container_id)
        assert "create" not in " ".join(steps)


@pytest.mark.slow
async def test_an_app_is_asked_at_the_address_that_it_was_made_with_whatever_the_settings_say(
    tmp_path: Path, free_port: FreePort, aiohttp_server: AiohttpServer
) -> None:
    engine, port, asked = FakeEngine(), free_port(), list[str]()
    by_http = HealthCheck(path="/", interval_seconds=1, timeout_seconds=1, retries=1)
    web_app = NewApp(name="web", image=IMAGE, http_port=port, health=by_http)

    async def page(request: web.Request) -> web.Response:
        asked.append(request.host)
        return web.Response()

    async with apps_of(tmp_path, engine, bind="127.0.0.2") as apps:
        await apps.create(web_app, ASKER)
    await aiohttp_server(one_handler_app(page), host="127.0.0.2", port=port)
    async with apps_of(tmp_path, engine, bind="127.0.0.1") as apps:
        await until_healthy(apps, is_so=True)

    assert set(asked) == {f"127.0.0.2:{port}"}


@pytest.mark.slow
async def test_nothing_is_checked_while_an_app_is_paused(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        await until_healthy(apps, is_so=True)
        (container,) = engine.state.containers.values()

        container.state = "paused"
        engine.happen("pause", container)
        await until_healthy(apps, is_so=None)
        await asyncio.sleep(0.1)
        checked = len(engine.checked)
        await asyncio.sleep(1.5)  # longer than the interval
        assert len(engine.checked) == checked

        container.state = "running"
        engine.happen("unpause", container)
        await until_healthy(apps, is_so=True)


@pytest.mark.slow
async def test_an_app_has_the_time_of_its_start_again_when_the_engine_was_away(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    patient = replace_check(retries=1, start_seconds=3600)
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=patient), ASKER)
        await until_healthy(apps, is_so=True)

        engine.check = Program(1)
        engine.go_away()
        await until_healthy(apps, is_so=None)
        checked = len(engine.checked)

        async def checked_twice() -> bool:
            return len(engine.checked) >= checked + 2

        await async_until(checked_twice)
        assert (await apps.queries.one("web")).healthy is None


@pytest.mark.slow
async def test_a_command_that_does_not_end_fails(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def hang(_container_id: str) -> int:
        return await asyncio.Event().wait()

    engine.check = hang
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)

        await until_healthy(apps, is_so=False)

        assert "did not end within 1 s" in ((await apps.queries.one("web")).message or "")


@pytest.mark.slow
async def test_a_bounded_number_of_checks_runs_at_the_same_time(tmp_path: Path) -> None:
    engine, going, most = FakeEngine(), 0, 0

    async def take_a_while(_container_id: str) -> int:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0.05)
        going -= 1
        return 0

    engine.check = take_a_while
    names = [f"web-{number}" for number in range(3 * MOST_CHECKS)]
    async with apps_of(tmp_path, engine) as apps:
        creations = [
            apps.create(NewApp(name=name, image=IMAGE, health=CHECK), ASKER) for name in names
        ]
        await asyncio.gather(*creations)

        async def all_healthy() -> bool:
            return all(each.healthy for each in await apps.queries.all())

        await async_until(all_healthy)

    assert 1 < most <= MOST_CHECKS
