"""What becomes of an app that fails its check: it is restarted, or its update goes back."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps.errors import StartFailed
from agent.apps.health import MOST_CHECKS
from agent.apps.runner.runner import MOST_OPERATIONS, MOST_OWN_OPERATIONS
from agent.engine.commands import CommandKind
from agent.engine.errors import EngineUnavailable
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.apps.checked_apps import (
    AT_ONCE,
    NEW,
    Program,
    apps_of,
    replace_check,
    until_healthy,
)
from tests.support.agent.engines.fake_engine import (
    IMAGE,
    IMAGE_IDS,
    PROBE_STEPS,
    FakeEngine,
    do_nothing,
)
from tests.support.agent.running_apps import ASKER, AskedApps, reported, running_apps
from tests.support.waiting import async_until

RESTART_STEPS = ("before stop", "after stop", "before start", "after start")


async def shows(metrics: CollectorRegistry, *, unhealthy: int) -> bool:
    """Return whether the metrics count so many unhealthy apps."""
    return metrics.get_sample_value("rollcall_apps_unhealthy") == unhealthy


async def assert_reported_over_the_restart(apps: AskedApps, metrics: CollectorRegistry) -> None:
    """Assert that an app counts as unhealthy though nothing was found since its restart."""

    async def begins_anew() -> bool:
        return (await apps.queries.one("web")).healthy is None

    await async_until(begins_anew)
    assert "ended with exit code 7" in ((await apps.queries.one("web")).message or "")
    assert [each.healthy for each in (await apps.hosted.hosted_apps()).apps] == [False]
    assert await shows(metrics, unhealthy=1)


@pytest.mark.slow
async def test_an_app_that_fails_its_check_is_reported_counted_and_restarted_until_it_is_healthy(
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
        record = await apps.queries.one("web")
        assert "unhealthy" in (record.message or "")
        assert "the command ended with exit code 7" in (record.message or "")
        assert [each.healthy for each in (await apps.hosted.hosted_apps()).apps] == [False]
        await async_until(partial(shows, metrics, unhealthy=1))

        async def restarted() -> bool:
            return "after start" in steps

        await async_until(restarted)
        (container,) = engine.state.containers.values()
        engine.happen("start", container)
        await assert_reported_over_the_restart(apps, metrics)
        program.exit_code = 0
        await until_healthy(apps, is_so=True)

        await async_until(partial(shows, metrics, unhealthy=0))
        assert (await apps.queries.one("web")).message is None
        assert steps == [*PROBE_STEPS, *RESTART_STEPS]
        values = {
            "rollcall_apps_turned_unhealthy_total": {},
            "rollcall_apps_restarted_total": {"reason": "unhealthy"},
        }
        for name, labels in values.items():
            assert metrics.get_sample_value(name, labels) == 1


class StubbornEngine(FakeEngine):
    """An engine on which the apps of a team do not end."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = set[str]()

    async def stop(self, container_id: str, seconds: int) -> None:
        if self.state.containers[container_id].name.startswith("team-"):
            self.stopping.add(container_id)
            await asyncio.Event().wait()
        await super().stop(container_id, seconds)


@pytest.mark.slow
async def test_unhealthy_apps_of_one_key_that_do_not_end_leave_restarts_to_others(
    tmp_path: Path,
) -> None:
    engine = StubbornEngine()
    engine.check = Program(7)
    check = replace_check(retries=1)
    async with running_apps(
        tmp_path,
        engine,
        LogCapture(),
        defaults=replace(AT_ONCE, overcommit_percent=0),
        drain_seconds=0,
        holders=lambda name: name.partition("-")[0],
    ) as apps:
        for name in (*(f"team-{number}" for number in range(20)), "web"):
            await apps.create(NewApp(name=name, image=IMAGE, health=check), ASKER)

        async def all_begun() -> bool:
            records = await apps.queries.all()
            found = [each.healthy for each in records if each.name != "web"]
            restarted = ("agent", "restart", "done") in await reported(apps)
            return restarted and found == [False] * 20 and len(engine.stopping) >= 12

        await async_until(all_begun)
        assert len(engine.stopping) == 12


def test_the_engine_runs_as_many_programs_as_keys_checks_and_restarts_together_may_wait_for() -> (
    None
):
    together = 2 * MOST_OPERATIONS + MOST_CHECKS + MOST_OWN_OPERATIONS
    assert together <= CommandKind.PROGRAM.value


async def until_restarted(apps: AskedApps) -> None:
    """Wait until the restart is reported, and the app runs and is healthy."""

    async def restarted() -> bool:
        reported = [(each.by, each.action, each.outcome) for each in await apps.events("web")]
        return reported.count(("agent", "restart", "done")) == 1

    await async_until(restarted)
    await until_healthy(apps, is_so=True)
    record = await apps.queries.one("web")
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
    once, steps = replace_check(retries=1), list[str]()

    async def pass_after_a_start(step: str) -> None:
        if step == "after start":
            program.exit_code = 0

    async def note(step: str) -> None:
        steps.append(step)

    async def fail_once(_container_id: str) -> int:
        engine.check = program
        return 1

    async with apps_of(tmp_path, engine, log=log) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, health=once), ASKER)
        await until_healthy(apps, is_so=True)
        # After one restart the next one comes two seconds after a check that fails.
        engine.at_step, program.exit_code = pass_after_a_start, 1
        await until_restarted(apps)
        engine.at_step, engine.check, before = note, fail_once, len(log.entries)

        async def healthy_again() -> bool:
            reported = [each["event"] for each in log.entries[before:]]
            return "app is unhealthy" in reported and "app is healthy again" in reported

        await async_until(healthy_again)
        checks = len(engine.checked)

        async def is_over() -> bool:
            return len(engine.checked) >= checks + 3

        await async_until(is_over)
        assert steps == []
        await until_restarted(apps)  # once, as before


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
        assert (await apps.queries.one("web")).container_id == created.container_id
        engine.check = Program(0)
        updated = await apps.update("web", AppChanges(env={"A": "2"}), ASKER)

        assert (updated.env, updated.healthy) == ({"A": "2"}, True)
