"""An engine that refuses to run a program in an app, as one whose disk is full may."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import StartFailed
from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.engine.models import ExecResult
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, do_nothing
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

REASON = "OCI runtime exec failed: no space left on device"


async def reject_exec(step: str) -> None:
    if step == "before execute":
        raise EngineRejected(REASON)


async def is_set(apps: AskedApps) -> bool:
    after = await apps.queries.one("web")
    return (after.progress, after.password, after.message) == (None, "set", None)


async def is_rejected(apps: AskedApps) -> bool:
    after = await apps.queries.one("web")
    return (after.progress, after.password, after.message) == (None, "pending", REASON)


@pytest.mark.slow
@pytest.mark.parametrize("respond_async", [False, True])
async def test_a_password_that_the_engine_rejects_is_pending_until_the_engine_sets_it(
    tmp_path: Path, *, respond_async: bool
) -> None:
    engine, log = FakeEngine(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = reject_exec

        asker = replace(ASKER, respond_async=respond_async)
        record = await apps.set_password("web", "correct horse battery", asker)

        if not respond_async:
            assert (record.password, record.message) == ("pending", REASON)
        await async_until(partial(is_rejected, apps))
        await apps.update("web", AppChanges(memory=128), ASKER)
        assert await is_rejected(apps)
        engine.at_step = do_nothing
        await async_until(partial(is_set, apps))
        events = [(each.action, each.message) for each in await apps.events("web")]

    assert events == [
        ("create", None),
        ("keys", f"the password is pending: {REASON}"),
        ("update", None),
        ("keys", None),
    ]
    rejections = [each for each in log.entries if "the engine rejects" in each["event"]]
    assert {(each["app"], each["reason"]) for each in rejections} == {("web", REASON)}
    (container,) = engine.state.containers.values()
    assert container.shadow.startswith("app:$6$")


async def lose_answer(step: str) -> None:
    if step == "after execute":
        raise EngineUnavailable("the connection was cut")


@pytest.mark.slow
async def test_a_password_whose_answer_was_lost_is_kept_though_the_next_attempt_is_rejected(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = lose_answer
        with pytest.raises(EngineUnavailable):
            await apps.set_password("web", "correct horse battery", ASKER)
        (container,) = engine.state.containers.values()
        held = container.shadow
        engine.at_step = reject_exec
        await async_until(partial(is_rejected, apps))
        engine.at_step = do_nothing

        await apps.rebuild("web", ASKER)

    (container,) = engine.state.containers.values()
    assert container.shadow == held


@pytest.mark.slow
async def test_a_recovered_password_that_the_engine_rejects_is_pending_and_blocks_no_change(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async def unavailable(step: str) -> None:
        if step == "before execute":
            raise EngineUnavailable("the connection was cut")

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = unavailable
        with pytest.raises(EngineUnavailable):
            await apps.set_password("web", "correct horse battery", ASKER)
        engine.at_step = reject_exec

        assert (await apps.stop("web", ASKER)).state == "exited"

        after = await apps.queries.one("web")
        assert (after.progress, after.password, after.message) == (None, "pending", REASON)


@pytest.mark.slow
async def test_a_password_is_pending_if_the_app_ends_when_the_engine_rejects_to_set_it(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async def end(step: str) -> None:
        if step == "before execute":
            (container,) = engine.state.containers.values()
            container.state = "paused"
            raise EngineRejected(REASON)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = end

        await apps.set_password("web", "correct horse battery", ASKER)

        assert (await apps.queries.one("web")).password == "pending"


@pytest.mark.slow
async def test_an_app_starts_though_the_engine_rejects_to_set_its_pending_password(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.stop("web", ASKER)
        await apps.set_password("web", "correct horse battery", ASKER)
        starts = list[str]()

        async def reject_and_count(step: str) -> None:
            starts.extend([step] if step == "before start" else [])
            await reject_exec(step)

        engine.at_step = reject_and_count
        started = await apps.start("web", ASKER)

        assert (started.state, started.password) == ("running", "pending")
        assert started.message == REASON
        assert starts == ["before start"]


class RejectedStartEngine(FakeEngine):
    """An engine that rejects each start but the first, and counts them."""

    starts = 0

    async def start(self, container_id: str) -> None:
        self.starts += 1
        if self.starts > 1:
            raise EngineRejected("no such runtime")
        await super().start(container_id)


@pytest.mark.slow
async def test_a_start_that_the_engine_rejects_is_asked_for_once_though_a_password_is_pending(
    tmp_path: Path,
) -> None:
    engine = RejectedStartEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.stop("web", ASKER)
        await apps.set_password("web", "correct horse battery", ASKER)

        with pytest.raises(StartFailed):
            await apps.start("web", ASKER)

        assert engine.starts == 2
        assert (await apps.queries.one("web")).password == "pending"


class FailingChpasswdEngine(FakeEngine):
    """An engine in whose apps `chpasswd` may fail, and which may read no file."""

    fails = False
    reads = True

    async def read_file(self, container_id: str, path: str) -> bytes:
        if not self.reads:
            raise EngineRejected(f"{path} cannot be read")
        return await super().read_file(container_id, path)

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        if self.fails and as_root:
            return ExecResult(exit_code=127, output="no chpasswd")
        return await super().execute(
            container_id, command, stdin=stdin, as_root=as_root, seconds=seconds
        )


@pytest.mark.slow
async def test_a_password_that_cannot_be_set_leaves_the_one_that_the_container_has(
    tmp_path: Path,
) -> None:
    engine = FailingChpasswdEngine()
    background = replace(ASKER, respond_async=True)

    async def pending(apps: AskedApps) -> bool:
        return (await apps.queries.one("web")).password == "pending"

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        await apps.set_password("web", "the first password", ASKER)
        (container,) = engine.state.containers.values()
        held = container.shadow
        engine.at_step = reject_exec
        await apps.set_password("web", "the second password", background)
        await async_until(partial(pending, apps))

        engine.fails = True
        engine.reads = False
        engine.at_step = do_nothing

        async def unreadable() -> bool:
            after = await apps.queries.one("web")
            return after.password == "pending" and "/etc/shadow cannot be" in (after.message or "")

        await async_until(unreadable)
        engine.reads = True

        async def dropped() -> bool:
            after = await apps.queries.one("web")
            return after.password == "set" and "dropped" in (after.message or "")

        await async_until(dropped)
        engine.fails = False
        await apps.rebuild("web", ASKER)

    (container,) = engine.state.containers.values()
    assert container.shadow == held
