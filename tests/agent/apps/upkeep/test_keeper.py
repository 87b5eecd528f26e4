"""AskedApps that should run and are down: started again, more and more rarely, or left down."""

import time
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.upkeep.keeper import RestartSchedule
from agent.engine.errors import EngineRejected
from agent.engine.models import Container
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.engines.fake_state import FakeContainer
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.machine.clocks import ManualClock
from tests.support.waiting import async_until

NEW = NewApp(name="web", image=IMAGE)
LONG_AGO = 60.0


def pauses(schedule: RestartSchedule, clock: ManualClock, count: int) -> list[float]:
    """Return the pauses before so many starts, of an app that is down all the time."""
    found, since = list[float](), clock.now
    while len(found) < count:
        if schedule.is_due("web"):
            schedule.attempted("web")
            found.append(clock.now - since)
            since = clock.now
        else:
            clock.now += schedule.seconds_to_next(3600)
    return found


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(300, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]), (4, [1, 2, 4, 4, 4])],
)
def test_an_app_is_started_after_a_second_and_then_after_pauses_that_double_to_a_bound(
    longest: float, expected: list[float]
) -> None:
    clock = ManualClock()

    found = pauses(RestartSchedule(clock, longest=longest), clock, len(expected))

    assert found == expected


@pytest.mark.parametrize(
    ("seconds_up", "pause"), [(9.9, 16), (15.9, 16), (16, 1)], ids=["short", "less", "long"]
)
def test_only_an_app_that_was_up_as_long_as_its_last_pause_begins_anew(
    seconds_up: float, pause: float
) -> None:
    clock = ManualClock()
    schedule = RestartSchedule(clock)
    pauses(schedule, clock, 4)

    schedule.well("web")
    clock.now += seconds_up
    schedule.well("web")

    assert pauses(schedule, clock, 1) == [pause]


def test_an_app_that_waits_longer_is_no_less_soon_afterwards() -> None:
    clock = ManualClock()
    schedule = RestartSchedule(clock)
    assert not schedule.is_due("web")

    schedule.postpone("web", 9)

    assert schedule.seconds_to_next(60) == 9
    assert pauses(schedule, clock, 2) == [9, 2]


def apps_of(
    folder: Path, engine: FakeEngine, log: LogCapture | None = None
) -> AbstractAsyncContextManager[AskedApps]:
    return running_apps(folder, engine, log or LogCapture(), defaults=AT_ONCE)


def down(engine: FakeEngine, *, stopped_at: float | None = None) -> FakeContainer:
    """End the only container, by a stop through the engine if ``stopped_at`` says when."""
    (container,) = engine.state.containers.values()
    container.state, container.stopped_at = "exited", stopped_at
    engine.happen("die", container)
    return container


async def until_state(apps: AskedApps, state: str, *, message: str = "") -> None:
    async def reached() -> bool:
        record = await apps.queries.one("web")
        reported = message in (record.message or "")
        return record.progress is None and record.state == state and reported

    await async_until(reached)


class ForgetfulEngine(FakeEngine):
    """An engine that shows once of each stop."""

    async def stopped_at(self, container_id: str) -> float | None:
        container = self.state.containers[container_id]
        stopped_at, container.stopped_at = container.stopped_at, None
        return stopped_at


@pytest.mark.slow
@pytest.mark.parametrize("engine", [FakeEngine(), ForgetfulEngine()], ids=["usual", "forgetful"])
async def test_a_stop_counts_when_the_engine_has_gone_on_for_ten_seconds(
    tmp_path: Path, engine: FakeEngine
) -> None:
    starts = list[str]()

    async def note(step: str) -> None:
        starts.extend([step] if step == "before start" else [])

    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step = note
        stopped_at = time.time() - 8.5

        down(engine, stopped_at=stopped_at)

        await until_state(apps, "exited", message="stopped through the container engine")
        assert time.time() - stopped_at >= 10
        assert starts == []


class PartlyBrokenEngine(FakeEngine):
    """An engine that does not tell of the stops of one container."""

    broken = ""

    async def stopped_at(self, container_id: str) -> float | None:
        if self.state.containers[container_id].name == self.broken:
            raise EngineRejected("the stop is not known")
        return await super().stopped_at(container_id)


@pytest.mark.slow
async def test_an_error_of_one_app_keeps_no_other_from_being_started(tmp_path: Path) -> None:
    engine, log = PartlyBrokenEngine(), LogCapture()
    async with apps_of(tmp_path, engine, log) as apps:
        for name in ("broken", "web"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        engine.broken = "broken"
        for container in engine.state.containers.values():
            container.state = "exited"
            engine.happen("die", container)

        await until_state(apps, "running")

        assert (await apps.queries.one("broken")).state == "exited"
        reasons = {each["reason"] for each in log.entries if "not compared" in each["event"]}
        assert reasons == {"the stop is not known"}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["start", "rebuild"])
async def test_a_start_or_a_rebuild_ends_what_a_stop_by_hand_began(
    tmp_path: Path, word: str
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        down(engine, stopped_at=time.time() - LONG_AGO)
        await until_state(apps, "exited", message="stopped through")

        updated = await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        assert (updated.state, updated.desired) == ("created", "running")
        assert "stopped through" in (updated.message or "")
        asked = await (apps.start if word == "start" else apps.rebuild)("web", ASKER)

        assert (asked.state, asked.message) == ("running", None)


@pytest.mark.slow
async def test_an_app_that_somebody_started_again_is_kept_again(tmp_path: Path) -> None:
    engine, log = FakeEngine(), LogCapture()

    async def seen_up() -> bool:
        # First it is noted that the app was stopped, then that it is up again.
        return [each.get("by") for each in log.entries].count("agent") == 2

    async with apps_of(tmp_path, engine, log) as apps:
        await apps.create(NEW, ASKER)
        container = down(engine, stopped_at=time.time() - LONG_AGO)
        await until_state(apps, "exited", message="stopped through")

        container.state, container.stopped_at = "running", None
        engine.happen("start", container)
        await async_until(seen_up)
        down(engine)

        await until_state(apps, "exited")
        await until_state(apps, "running")


@pytest.mark.slow
async def test_the_message_holds_the_reason_and_the_number_of_tries(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def reject(step: str) -> None:
        if step == "before start":
            raise EngineRejected("address already in use")

    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        engine.at_step = reject
        down(engine)
        await until_state(apps, "exited", message="address already in use; tried once")
    async with apps_of(tmp_path, engine) as apps:  # the number outlives the agent
        await until_state(apps, "exited", message="address already in use; tried 2 times")

        engine.at_step = FakeEngine().at_step
        await until_state(apps, "running")
        assert (await apps.queries.one("web")).message is None


@pytest.mark.slow
async def test_stopped_failed_and_missing_apps_are_not_started(tmp_path: Path) -> None:
    engine, steps = FakeEngine(), list[str]()

    async def note(step: str) -> None:
        steps.append(step)

    background = replace(ASKER, respond_async=True)
    async with apps_of(tmp_path, engine) as apps:
        for name in ("stopped", "missing", "web"):
            await apps.create(NewApp(name=name, image=IMAGE), ASKER)
        await apps.stop("stopped", ASKER)
        await apps.create(NewApp(name="failed", image="no:image"), background)
        stopped, missing, web = engine.state.containers.values()
        del engine.state.containers[missing.id]
        web.state = "exited"
        engine.at_step = note

        engine.happen("die", web)
        await until_state(apps, "running")

        states = {each.name: each.state for each in await apps.queries.all()}
        assert states == {
            "failed": "failed",
            "missing": "missing",
            "stopped": "exited",
            "web": "running",
        }
        assert steps == ["before start", "after start"]
        assert stopped.state == "exited"


class LaggingEngine(FakeEngine):
    """An engine whose list shows, up to a moment, all as running."""

    stale_until = 0.0

    async def containers(
        self, *, label: str | None = None, seconds: float | None = None
    ) -> list[Container]:
        found = await super().containers(label=label, seconds=seconds)
        if time.monotonic() > self.stale_until:
            return found
        return [msgspec.structs.replace(each, state="running") for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.2, 1.5])
async def test_an_app_that_ends_is_started_though_the_list_lags_behind_the_event(
    seconds: float, tmp_path: Path
) -> None:
    engine = LaggingEngine()
    async with apps_of(tmp_path, engine) as apps:
        await apps.create(NEW, ASKER)
        engine.stale_until = time.monotonic() + seconds

        container = down(engine)

        # Without a look in between, the next one would come after a minute.
        await async_until(lambda: is_up(engine, container), within=45.0)


async def is_up(engine: FakeEngine, container: FakeContainer) -> bool:
    return engine.state.containers[container.id].state == "running"
