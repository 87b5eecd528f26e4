"""When an app crashes in a loop, and what is reported it."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.requests import Rebuild
from agent.apps.run_history import MOST_ENDS, Crashes
from agent.model import NewApp
from agent.state.history import Event
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.machine.clocks import ManualClock
from tests.support.waiting import async_until

NOON = 1_791_979_200.0  # 2026-10-14T12:00:00Z


def engine_event(action: str, at: float, **fields: Any) -> Event:
    return Event(time=NOON + at, app="web", by="engine", actor="engine", action=action, **fields)


def end(at: float, exit_code: int | None = 3) -> Event:
    return engine_event("die", at, exit_code=exit_code)


def change(action: str, at: float, **fields: Any) -> Event:
    values = {"by": "operator", "actor": "key", "outcome": "done", **fields}
    return Event(time=NOON + at, app="web", action=action, **values)


class Seen:
    """Crashes of the app `web`, as of the time of its last event or a later one."""

    def __init__(self, *events: Event) -> None:
        self._clock = ManualClock(NOON)
        self.loops = 0
        self.crashes = Crashes(on_loop=self._begun, clock=self._clock)
        self.add(*events)

    def _begun(self) -> None:
        self.loops += 1

    def add(self, *events: Event) -> None:
        for event in events:
            self._clock.now = max(self._clock.now, event.time)
            self.crashes.add([event])

    def reported(self, at: float | None = None) -> str | None:
        if at is not None:
            self._clock.now = NOON + at
        return self.crashes.message("web")


def test_three_ends_within_ten_minutes_are_a_loop() -> None:
    seen = Seen(end(0), end(14))
    assert (seen.reported(), seen.loops) == (None, 0)

    seen.add(end(28, exit_code=7))

    assert seen.reported() == (
        "ended by itself 3 times in the last 10 minutes, last with exit code 7 at"
        " 2026-10-14T12:00:28Z; its logs may tell why"
    )
    assert seen.loops == 1
    seen.add(end(42, exit_code=None))
    assert (seen.reported() or "").startswith(
        "ended by itself 4 times in the last 10 minutes, last at"
    )
    assert seen.loops == 1
    assert seen.crashes.message("shop") is None


def test_a_loop_is_over_after_ten_minutes_without_an_end() -> None:
    seen = Seen(end(0), end(14), end(500))

    assert (seen.reported(1099) or "").startswith("ended by itself once in the last 10 minutes")
    assert seen.reported(1101) is None
    seen.add(end(1102), end(1103))
    assert seen.reported() is None


@pytest.mark.parametrize("action", ["update", "start", "stop", "rebuild", "rollback", "restart"])
def test_a_change_by_an_operator_begins_anew(action: str) -> None:
    seen = Seen(end(0), end(14), end(28), change(action, 30))

    assert seen.reported() is None
    # The engine's events are written a moment later than they happen.
    seen.add(end(29), end(29.5), end(31), end(45))
    assert seen.reported() is None
    seen.add(end(60))
    assert (seen.reported() or "").startswith("ended by itself 3 times")


LOOP = (end(0), end(14), end(28))
KILLED = (engine_event("kill", 1), end(2), engine_event("start", 3))


@pytest.mark.parametrize(
    "events",
    [
        [*LOOP, change("update", 30, outcome="failed")],
        [*LOOP, change("label", 30)],
        [*LOOP, change("keys", 30)],
        [*LOOP, change("restart", 30, by="agent", actor="agent")],
        [*LOOP, change("start", 30, by="agent", actor="agent")],
        [*LOOP, engine_event("start", 30)],
        [*LOOP, engine_event("oom", 30)],
        [*KILLED, end(10), end(20), end(30)],
        # The app has outlived the signal.
        [engine_event("kill", 1), end(40), end(50), end(60)],
    ],
)
def test_three_ends_by_itself_are_a_loop_whatever_else_happens(events: list[Event]) -> None:
    assert Seen(*events).reported() is not None


@pytest.mark.parametrize(
    "events",
    [
        [end(301.0 * number) for number in range(10)],
        [end(0), end(1), end(2), end(700)],
        [*LOOP, engine_event("stop", 29)],
        [*KILLED] * 5,
        [*KILLED, end(10), end(20)],
    ],
    ids=["further apart", "loop is over", "stop", "ends by signals", "one end by a signal"],
)
def test_other_ends_are_no_loop(events: list[Event]) -> None:
    assert Seen(*events).reported() is None


def test_a_clock_that_is_set_back_leaves_no_loop_behind() -> None:
    assert Seen(end(0), end(14), end(28)).reported(-86_400) is None


def test_what_is_remembered_is_bounded() -> None:
    seen = Seen(*(end(number / 100) for number in range(3 * MOST_ENDS)))
    assert (seen.reported() or "").startswith(f"ended by itself {MOST_ENDS} times")

    others = [Event(time=NOON + at, app=f"app-{at}", by="", action="") for at in range(1000)]
    seen.add(*others)
    seen.add(change("create", 10_000))

    assert seen.crashes.remembered == 1


async def _loop_is_reported(apps: AskedApps, *, is_so: bool) -> bool:
    (listed,) = await apps.queries.all()
    record = await apps.queries.one("web")
    (hosted,) = (await apps.hosted.hosted_apps()).apps
    messages = {listed.message, record.message}
    reported = [("ended by itself 3 times" in (each or "")) for each in messages]
    return (reported, hosted.healthy) == (([True], False) if is_so else ([False], None))


async def test_a_loop_is_reported_until_the_app_is_changed_also_by_an_agent_that_was_restarted(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        for _ in range(3):
            assert await _loop_is_reported(apps, is_so=False)
            engine.happen("die", container, exit_code=3)
            engine.happen("start", container)
        await async_until(lambda: _loop_is_reported(apps, is_so=True))

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert await _loop_is_reported(apps, is_so=True)
        assert (await apps.queries.one("web")).state == "running"
        assert (await apps.queries.one("web")).healthy is None
        plan = await apps.plan(Rebuild("web"), ASKER)
        assert plan.app is not None
        assert plan.app.message is None
        await apps.rebuild("web", ASKER)
        assert await _loop_is_reported(apps, is_so=False)
