"""Apps are checked as their records ask, told, and restarted; over an engine in memory."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps.errors import InvalidApp, StartFailed
from agent.apps.health.checker import MOST_CHECKS
from agent.apps.service.apps import Apps
from agent.engine.errors import EngineUnavailable
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, IMAGE_IDS, FakeEngine, do_nothing
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.daemons import FreePort
from tests.support.waiting import async_until

AT_ONCE = replace(DEFAULTS, settle_seconds=0, healthy_seconds=0, min_free_percent=0)
CHECK = HealthCheck(command=("check",), interval_seconds=1, timeout_seconds=1, retries=2)
NEW = NewApp(name="web", image=IMAGE, health=CHECK)


class Program:
    """The command of a check, whose exit code the test sets."""

    def __init__(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code

    async def __call__(self, _container_id: str) -> int:
        return self.exit_code


def apps_of(
    folder: Path,
    engine: FakeEngine,
    *,
    log: LogCapture | None = None,
    metrics: CollectorRegistry | None = None,
    **defaults: Any,
) -> AbstractAsyncContextManager[Apps]:
    return running_apps(
        folder,
        engine,
        log or LogCapture(),
        defaults=replace(AT_ONCE, **defaults),
        metrics=metrics,
    )


async def until_healthy(apps: Apps, *, is_so: bool | None) -> None:
    async def found() -> bool:
        (listed,) = await apps.all()
        return listed.healthy is (await apps.get("web")).healthy is is_so

    await async_until(found)


@pytest.mark.slow
async def test_an_app_that_fails_its_check_is_told_counted_and_restarted_until_it_is_healthy(
    tmp_path: Path,
) -> None:
    engine, program, metrics = FakeEngine(), Program(), CollectorRegistry()
    engine.check = program
    async with apps_of(tmp_path, engine, metrics=metrics) as apps:
        await apps.create(NEW, ASKER)
        await until_healthy(apps, is_so=True)
        steps = list[str]()

        async def note(step: str) -> None:
            steps.append(step)

        engine.at_step = note
        program.exit_code = 7
        await until_healthy(apps, is_so=False)
        record = await apps.get("web")
        assert "unhealthy" in (record.message or "")
        assert "the command ended with exit code 7" in (record.message or "")
        assert [each.healthy for each in (await apps.hosted_apps()).apps] == [False]

        async def restarted() -> bool:
            return "after start" in steps

        await async_until(restarted)
        (container,) = engine.state.containers.values()
        engine.happen("start", container)
        program.exit_code = 0
        await until_healthy(apps, is_so=True)

        assert (await apps.get("web")).message is None
        assert steps == ["before stop", "after stop", "before start", "after start"]
        values = {
            "rollcall_apps_turned_unhealthy_total": {},
            "rollcall_apps_restarted_total": {"reason": "unhealthy"},
        }
        for name, labels in values.items():
            assert metrics.get_sample_value(name, labels) == 1


RESTART_STEPS = ["before stop", "after stop", "before start", "after start"]


async def until_restarted(apps: Apps) -> None:
    """Wait until the restart is told, and the app runs and is healthy."""

    async def restarted() -> bool:
        told = [(each.by, each.action, each.outcome) for each in await apps.events("web")]
        return told.count(("agent", "restart", "done")) == 1

    await async_until(restarted)
    await until_healthy(apps, is_so=True)
    record = await apps.get("web")
    assert (record.state, record.desired, record.message) == ("running", "running", None)


@pytest.mark.slow
@pytest.mark.parametrize("at", RESTART_STEPS)
async def test_a_restart_in_which_the_agent_ends_is_finished_at_its_next_start(
    tmp_path: Path, at: str
) -> None:
    engine, program, reached = FakeEngine(), Program(), asyncio.Event()
    engine.check = program

    async def hang(step: str) -> None:
        if step == at:
            reached.set()
            await asyncio.Event().wait()

    async with running_apps(
        tmp_path, engine, LogCapture(), defaults=AT_ONCE, drain_seconds=0
    ) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step, program.exit_code = hang, 7
        await reached.wait()

    engine.at_step, program.exit_code = do_nothing, 0
    async with apps_of(tmp_path, engine) as apps:
        await until_restarted(apps)
        assert len(engine.state.containers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", RESTART_STEPS)
async def test_a_restart_whose_answer_is_lost_is_finished(tmp_path: Path, at: str) -> None:
    engine, program = FakeEngine(), Program()
    engine.check = program

    async def lose(step: str) -> None:
        if step == at:
            engine.at_step, program.exit_code = do_nothing, 0
            raise EngineUnavailable("the engine does not answer")

    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step, program.exit_code = lose, 7
        await until_restarted(apps)
        assert len(engine.state.containers) == 1


@pytest.mark.slow
async def test_an_app_that_gets_healthy_by_itself_is_not_restarted(tmp_path: Path) -> None:
    engine, program, log = FakeEngine(), Program(), LogCapture()
    engine.check = program
    once = replace_check(retries=1)

    def told(event: str) -> bool:
        return event in [each["event"] for each in log.entries]

    async def fail_once(_container_id: str) -> int:
        engine.check = program
        return 1

    async with apps_of(tmp_path, engine, log=log) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=once), ASKER)
        await until_healthy(apps, is_so=True)
        engine.check = fail_once

        async def healthy_again() -> bool:
            return told("app is healthy again")

        await async_until(healthy_again)
        assert told("app is unhealthy")


def replace_check(**fields: Any) -> HealthCheck:
    values = {"command": ("check",), "interval_seconds": 1, "timeout_seconds": 1, **fields}
    return HealthCheck(**values)


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
    tmp_path: Path, free_port: FreePort
) -> None:
    engine, port, asked = FakeEngine(), free_port(), list[str]()
    by_http = HealthCheck(path="/", interval_seconds=1, timeout_seconds=1, retries=1)
    web_app = NewApp(name="web", image=IMAGE, http_port=port, health=by_http)

    async def page(request: web.Request) -> web.Response:
        asked.append(request.host)
        return web.Response()

    async with apps_of(tmp_path, engine, bind="127.0.0.2") as apps:
        await apps.create(web_app, ASKER)
    app = web.Application()
    app.router.add_get("/", page)
    async with (
        TestServer(app, host="127.0.0.2", port=port),
        apps_of(tmp_path, engine, bind="127.0.0.1") as apps,
    ):
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
        assert (await apps.get("web")).healthy is None


@pytest.mark.slow
async def test_a_command_that_does_not_end_fails(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def hang(_container_id: str) -> int:
        return await asyncio.Event().wait()

    engine.check = hang
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)

        await until_healthy(apps, is_so=False)

        assert "did not end within 1 s" in ((await apps.get("web")).message or "")


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
            return all(each.healthy for each in await apps.all())

        await async_until(all_healthy)

    assert 1 < most <= MOST_CHECKS


@pytest.mark.slow
@pytest.mark.parametrize("image_health", [None, "unhealthy"])
async def test_an_update_that_does_not_pass_its_check_goes_back_whatever_was_before(
    tmp_path: Path, image_health: Any
) -> None:
    engine = FakeEngine()
    engine.check = Program(1)
    if image_health is not None:
        engine.health_of = {IMAGE_IDS[IMAGE]: image_health}
    async with apps_of(tmp_path, engine) as apps:
        check = HealthCheck(
            command=("check",), interval_seconds=1, timeout_seconds=1, retries=1, start_seconds=0
        )
        created = await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)

        with pytest.raises(StartFailed, match=r"does not get healthy within .*exit code 1"):
            await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        assert (await apps.get("web")).container_id == created.container_id
        engine.check = Program(0)
        updated = await apps.update("web", AppChanges(env={"A": "2"}), ASKER)

        assert (updated.env, updated.healthy) == ({"A": "2"}, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "field"),
    [
        (HealthCheck(), "health"),
        (HealthCheck(path="/", command=("true",)), "health"),
        (HealthCheck(path="healthz"), "health.path"),
        (HealthCheck(path="/a b"), "health.path"),
        (HealthCheck(path="/ä"), "health.path"),
        (HealthCheck(path="/\r\nHost: x"), "health.path"),
        (HealthCheck(command=()), "health.command"),
        (HealthCheck(command=("",)), "health.command"),
        (HealthCheck(command=("a\0",)), "health.command"),
        (HealthCheck(command=("x" * 9000,)), "health.command"),
    ],
)
async def test_a_check_that_cannot_be_is_refused_by_its_field(
    tmp_path: Path, check: HealthCheck, field: str
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        with pytest.raises(InvalidApp, match=f"`{field}`"):
            await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)
        assert await apps.all() == []


@pytest.mark.slow
async def test_a_command_is_refused_where_apps_may_have_none(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine(), allow_command=False) as apps:
        with pytest.raises(InvalidApp, match=r"`health\.command`.*allow_command"):
            await apps.create(NEW, ASKER)
        await apps.create(NewApp(name="web", image=IMAGE, health=HealthCheck(path="/")), ASKER)
