"""Each operation that did something is reported once, with how it ended, in the same write."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppError, AppNotFound
from agent.apps.records import AppView, EventView
from agent.engine.errors import EngineUnavailable
from agent.model import AppChanges, NewApp
from agent.state.history import MAX_MESSAGE_LENGTH
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.engines.flaky_engine import Flaky
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, reported, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow
PASSWORD = "correct horse battery"


async def test_each_operation_is_reported_with_its_outcome(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(memory=64, description="Shop"), ASKER)
        await apps.update("web", AppChanges(env={"TOKEN": "s3cret"}), ASKER)
        await apps.update("web", AppChanges(description="Shop 2"), ASKER)
        await apps.add_label("web", "a:b", ASKER)
        await apps.set_password("web", PASSWORD, ASKER)
        await apps.rebuild("web", ASKER)
        await apps.stop("web", ASKER)
        await apps.start("web", ASKER)
        events = await apps.events("web")

    assert [(each.by, each.action, each.outcome, each.changed) for each in events] == [
        ("operator", "create", "done", ()),
        ("operator", "update", "done", ("memory", "description")),
        ("operator", "update", "done", ("env",)),
        ("operator", "update", "done", ("description",)),
        ("operator", "label", "done", ("labels",)),
        ("operator", "keys", "done", ()),
        ("operator", "rebuild", "done", ()),
        ("operator", "stop", "done", ()),
        ("operator", "start", "done", ()),
    ]
    assert not any("s3cret" in repr(each) or PASSWORD in repr(each) for each in events)


async def test_an_event_names_the_revision_that_its_operation_made(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(description="Shop", env={"A": "b"}), ASKER)
        await apps.add_label("web", "team:one", ASKER)
        await apps.rollback("web", None, ASKER)
        events = await apps.events("web")
        newest = (await apps.history("web"))[0]

    assert [(each.action, each.revision, each.message) for each in events] == [
        ("create", 1, None),
        ("update", 2, None),
        ("label", None, None),
        ("rollback", 3, "back to revision 1"),
    ]
    assert set(events[-1].changed) == set(newest.changed) == {"description", "env"}


async def test_what_changes_nothing_or_is_rejected_at_once_is_no_event(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.start("web", ASKER)
        await apps.update("web", AppChanges(cpu=50), ASKER)
        with pytest.raises(AppError):
            await apps.update("web", AppChanges(cpu=100_000), ASKER)

        assert await reported(apps) == [("operator", "create", "done")]


async def test_whoever_is_reported_an_operation_and_asks_at_once_gets_the_app_as_it_left_it(
    tmp_path: Path,
) -> None:
    answers = list[asyncio.Task[AppView]]()
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        apps.context.repository.feed.listeners.append(
            lambda: answers.append(asyncio.create_task(apps.queries.one("web")))
        )
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(description="Shop"), ASKER)
        await apps.update("web", AppChanges(env={"A": "b"}), ASKER)
        await apps.rollback("web", None, ASKER)
        await apps.stop("web", ASKER)
        await apps.delete("web", ASKER)
        *seen, gone = await asyncio.gather(*answers, return_exceptions=True)

    assert isinstance(gone, AppNotFound)
    records = [each for each in seen if isinstance(each, AppView)]
    assert [(each.state, each.description, each.env, each.revision) for each in records] == [
        ("running", "", {}, 1),
        ("running", "Shop", {}, 2),
        ("running", "Shop", {"A": "b"}, 3),
        ("running", "Shop", {}, 4),
        ("exited", "Shop", {}, 4),
    ]
    assert [each.progress for each in records] == [None] * 5


async def test_an_operation_that_fails_is_reported_with_the_reason(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        with pytest.raises(AppError):
            await apps.create(NewApp(name="web", image=BROKEN_IMAGE), ASKER)
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        with pytest.raises(AppError, match="no such program"):
            await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        events = await apps.events("web")

        assert await reported(apps) == [
            ("operator", "create", "failed"),
            ("operator", "create", "done"),
            ("operator", "update", "failed"),
        ]
    assert "no such program" in str(events[2].message)
    assert events[2].changed == ()


@pytest.mark.parametrize("change", ["description", "memory", "label", "password"])
async def test_the_reason_of_a_failure_ends_with_a_change_that_succeeds(
    tmp_path: Path, change: str
) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        with pytest.raises(AppError):
            await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        with pytest.raises(AppError):
            await apps.update("web", AppChanges(cpu=100_000), ASKER)
        assert "no such program" in ((await apps.queries.one("web")).message or "")

        match change:
            case "description":
                after = await apps.update("web", AppChanges(description="Shop"), ASKER)
            case "memory":
                after = await apps.update("web", AppChanges(memory=64), ASKER)
            case "label":
                after = await apps.add_label("web", "a:b", ASKER)
            case _:
                after = await apps.set_password("web", PASSWORD, ASKER)

    assert after.message is None


class EndingEngine(FakeEngine):
    """An engine whose containers end at once, after they have written this."""

    def __init__(self, output: bytes) -> None:
        super().__init__()
        self._output = output
        self.at_step = self._end

    async def _end(self, step: str) -> None:
        if step == "after start":
            for container in self.state.containers.values():
                container.state = "exited"

    async def logs(
        self,
        container_id: str,
        *,
        tail: int | None,
        since: float | None,
        follow: bool,
        until: float | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes]:
        del container_id, tail, since, follow, until, timestamps
        yield self._output


async def failed_create(folder: Path, output: bytes) -> tuple[EventView, AppError]:
    """Return the event of a create whose container ends, and the answer to whoever asked."""
    log = LogCapture()
    async with running_apps(folder, EndingEngine(output), log, defaults=AT_ONCE) as apps:
        with pytest.raises(AppError) as answer:
            await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (event,) = await apps.events("web")
    # What an app writes may be secret: it is not in the agent's own log.
    assert "does not stay up" in repr(log.entries)
    assert "wrote" not in repr(log.entries)
    return event, answer.value


async def test_the_event_of_an_app_that_does_not_stay_up_has_its_exit_code_and_last_words(
    tmp_path: Path,
) -> None:
    event, answer = await failed_create(tmp_path, b"no database\n")

    assert (event.action, event.outcome, event.exit_code) == ("create", "failed", 0)
    assert event.message == str(answer)
    assert (event.message or "").endswith("; it wrote:\nno database")


async def test_an_event_has_the_last_five_lines_without_control_characters(tmp_path: Path) -> None:
    lines = "".join(f"\x1b[31mline\t{number}\x1b[0m\r\n" for number in range(20)).encode() + b"\xff"

    event, answer = await failed_create(tmp_path, lines)

    _, _, output = (event.message or "").partition("; it wrote:\n")
    expected = [f"\ufffd[31mline\ufffd{number}\ufffd[0m" for number in range(16, 20)]
    assert output.split("\n") == [*expected, "\ufffd"]
    assert "line\t0" in str(answer)


@pytest.mark.parametrize("length", [300, 5000])
async def test_an_event_has_the_end_of_long_lines(tmp_path: Path, length: int) -> None:
    lines = "\n".join(f"{number}{'x' * length}end{number}" for number in range(5))

    event, _ = await failed_create(tmp_path, lines.encode())

    reason, _, output = (event.message or "").partition("; it wrote:\n")
    assert "does not stay up" in reason
    assert output.endswith("xend4")
    assert len(event.message or "") <= MAX_MESSAGE_LENGTH
    # Only a line that is alone may be without its beginning.
    assert length > MAX_MESSAGE_LENGTH or output.startswith("3x")


async def test_events_outlive_a_restart_and_the_app(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.delete("web", ASKER)
        before = await apps.events("web")
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert await apps.events("web") == before
        assert [each.action for each in before] == ["create", "delete"]
        with pytest.raises(AppNotFound):
            await apps.events("never")


@pytest.mark.parametrize(
    ("call", "outcome"), [("create", "failed"), ("remove", "done")], ids=["undone", "finished"]
)
async def test_an_operation_that_was_interrupted_is_reported_once_when_it_is_recovered(
    tmp_path: Path, call: str, outcome: str
) -> None:
    engine = Flaky(call)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.call = call
        with pytest.raises(EngineUnavailable):
            await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        assert await reported(apps) == [("operator", "create", "done")]

    engine.call = None
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert await reported(apps) == [
            ("operator", "create", "done"),
            ("operator", "update", outcome),
        ]


async def test_what_the_agent_does_by_itself_is_reported_with_the_reason(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        container.state = "exited"
        engine.happen("die", container, exit_code=137)
        await async_until(lambda: _up_again(apps))
        events = await apps.events("web")

    assert [(each.by, each.action, each.outcome, each.exit_code) for each in events] == [
        ("operator", "create", "done", None),
        ("engine", "die", None, 137),
        ("agent", "start", "done", None),
    ]
    assert events[2].message == "it was down"


async def _up_again(apps: AskedApps) -> bool:
    return ("agent", "start", "done") in await reported(apps)


async def test_an_event_shows_a_key_from_the_agent_and_the_engine_whatever_the_key_is_called(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), replace(ASKER, name="agent"))
        await apps.add_label("web", "a:b", replace(ASKER, name="engine"))
        (container,) = engine.state.containers.values()
        container.state = "exited"
        engine.happen("die", container, exit_code=137)
        await async_until(lambda: _up_again(apps))
        events = await apps.events("web")

    assert [(each.by, each.actor, each.action) for each in events] == [
        ("agent", "key", "create"),
        ("engine", "key", "label"),
        ("engine", "engine", "die"),
        ("agent", "agent", "start"),
    ]
