"""A dry run says what the change then does, or fails as the change does, and changes nothing."""

import asyncio
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.errors import AppBusy, AppError, DataInUse, PortInUse
from agent.apps.records import PlanView
from agent.apps.requests import Create, Delete, Stop, Update
from agent.engine.errors import DiskFull, EngineUnavailable, ImageNotFound
from agent.engine.models import PullProgress
from agent.model import FIELD_KINDS, AppChanges, HealthCheck, NewApp
from tests.support.agent.apps.changes import CHANGES, outcome, prepare, shown
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, fake_image
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow
REPLACING = {"change env", "change the image", "rebuild", "rebuild what is stopped"} | {
    *("change a stopped app", "restore", "roll back")
}
OTHERS = {
    **dict.fromkeys(("change a stopped app", "start", "rebuild what is stopped"), "off"),
    **dict.fromkeys(("set a password of a stopped app", "restore", "restore nonsense"), "off"),
    **dict.fromkeys(("stop what is stopped", "delete and keep the data"), "off"),
    "roll back what was never changed": "off",
    # Of a create with the name of another app or container:
    "create a name in use": "web",
    "create under a foreign container's name": "theirs",
    "start what has lost its container": "lost",
    "stop what is not there": "nobody",
}
# With a second to end and a second to start; None: it is down then.
SECONDS: dict[str, int | None] = {
    **dict.fromkeys(("change env", "change the image", "rebuild", "roll back", "restart"), 2),
    **dict.fromkeys(("stop", "delete"), None),
}


def everything(folder: Path, engine: FakeEngine) -> Any:
    """Return all that could change: the database with its events, and what the engine has."""
    with closing(sqlite3.connect(folder / "agent.db")) as database:
        tables = list(database.iterdump())
    return tables, msgspec.to_builtins(engine.state), engine.networks


@pytest.mark.parametrize("name", CHANGES)
async def test_a_dry_run_says_what_the_change_then_does_and_changes_nothing(
    tmp_path: Path, name: str
) -> None:
    engine, change = FakeEngine(), CHANGES[name]
    name_of_app = OTHERS.get(name, "new" if name.startswith("create") else "web")
    limited = replace(AT_ONCE, overcommit_percent=50)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=limited) as apps:
        await prepare(apps, engine)
        before = everything(tmp_path, engine)

        was = await outcome(apps.queries.one(name_of_app))
        planned = await outcome(apps.plan(change(), ASKER))

        assert everything(tmp_path, engine) == before
        happened = await outcome(apps.change(change(), ASKER))
    if isinstance(happened, tuple):
        assert planned == happened
        return
    assert isinstance(planned, PlanView)
    if isinstance(was, tuple) or happened is None:
        assert planned.changed is None
    else:
        known = ("image_id",) if was.image_id is not None else ()
        names = (*FIELD_KINDS, *known, "labels")
        reported = [each for each in names if getattr(was, each) != getattr(happened, each)]
        assert list(planned.changed or ()) == reported
    assert shown(planned.app) == shown(happened)
    assert planned.replaces_container is (name in REPLACING)
    assert planned.seconds_without_service == SECONDS.get(name, 0)


@pytest.mark.parametrize("name", ["delete", "restore"])
async def test_a_change_that_waits_for_the_end_of_a_reading_is_rejected_in_a_dry_run_too(
    tmp_path: Path, name: str
) -> None:
    engine, change = FakeEngine(), CHANGES[name]
    app = OTHERS.get(name, "web")
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await prepare(apps, engine)
        async with apps.export(app, ASKER, pause=False):
            with pytest.raises(DataInUse, match="is being read"):
                await apps.plan(change(), ASKER)

        assert isinstance(await apps.plan(change(), ASKER), PlanView)


async def test_who_asks_while_the_app_is_busy_waits_as_for_the_change(tmp_path: Path) -> None:
    engine, going_on = FakeEngine(), asyncio.Event()

    async def wait(step: str) -> None:
        if step == "before stop":
            await going_on.wait()

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = wait
        stopping = asyncio.create_task(apps.stop("web", ASKER))
        await async_until(lambda: is_busy(apps))

        with pytest.raises(AppBusy, match="is being stopped"):
            await apps.plan(CHANGES["change env"](), replace(ASKER, wait_seconds=0))
        planning = asyncio.create_task(apps.plan(CHANGES["change env"](), ASKER))
        going_on.set()
        await stopping

        assert (await planning).seconds_without_service == 0


async def test_an_app_whose_change_was_interrupted_is_recovered_before_it_is_planned(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()

    async def break_off(step: str) -> None:
        if step == "before stop":
            raise EngineUnavailable("it went away")

    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.at_step = break_off
        with pytest.raises(EngineUnavailable):
            await apps.stop("web", ASKER)

        with pytest.raises(AppBusy, match=r"the stop of app `web` was interrupted.*; ask again"):
            await apps.plan(CHANGES["change env"](), ASKER)


async def is_busy(apps: AskedApps) -> bool:
    return (await apps.queries.one("web")).progress is not None


async def test_a_port_that_somebody_took_meanwhile_is_reported(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await prepare(apps, engine)
        port = (await apps.queries.one("off")).http_port
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()

            with pytest.raises(PortInUse, match=f"port {port} of app `off` is held by another"):
                await apps.plan(CHANGES["start"](), ASKER)


async def test_an_app_that_moves_to_the_network_of_isolated_apps_is_reported_so(
    tmp_path: Path,
) -> None:
    engine, isolated = FakeEngine(), replace(AT_ONCE, isolated=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=isolated) as apps:
        planned = await apps.plan(CHANGES["rebuild"](), ASKER)
        unmoved = await apps.plan(CHANGES["change the record"](), ASKER)

    assert "into the network `rollcall`" in str(planned.message)
    assert unmoved.message is None


async def test_an_app_that_stays_in_the_default_network_is_reported_nothing_whatever_its_name(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        container.network = "bridge"  # as Docker 26 and newer call it
        planned = await apps.plan(CHANGES["rebuild"](), ASKER)

    assert (planned.replaces_container, planned.message) == (True, None)


async def test_what_one_dry_run_finds_healthy_is_not_healthy_in_another(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        check = HealthCheck(path="/", interval_seconds=3600)
        await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)
        await apps.plan(CHANGES["change env"](), ASKER)

        planned = await apps.plan(CHANGES["create with all"](), ASKER)

        assert planned.app is not None
        assert planned.app.health is not None
        assert planned.app.healthy is None


async def test_only_the_restore_itself_waits_for_the_disks(tmp_path: Path) -> None:
    flushed = list[str]()

    async def flush() -> None:
        flushed.append("disks")

    async with running_apps(
        tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE, flush=flush
    ) as apps:
        await apps.create(NewApp(name="off", image=IMAGE), ASKER)
        await apps.stop("off", ASKER)

        await apps.plan(CHANGES["restore"](), ASKER)
        assert flushed == []

        await apps.change(CHANGES["restore"](), ASKER)
        assert flushed == ["disks"]


async def test_a_disk_that_is_too_full_is_reported_as_by_the_change(tmp_path: Path) -> None:
    full = replace(AT_ONCE, min_free_percent=100)
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=full) as apps:
        planned = await outcome(apps.plan(CHANGES["create"](), ASKER))

        assert planned == await outcome(apps.change(CHANGES["create"](), ASKER))
        assert planned[0] is DiskFull


async def test_an_image_that_would_be_pulled_is_asked_for_and_not_pulled(tmp_path: Path) -> None:
    engine = ServedEngine({"served:1"})
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)

        planned = await apps.plan(Update("web", AppChanges(image="served:1")), ASKER)
        with pytest.raises(ImageNotFound, match=r"the image `other:1` cannot be had: unknown"):
            await apps.plan(Create("new", NewApp(name="new", image="other:1")), ASKER)

    assert engine.asked == ["served:1", "other:1"]
    assert planned.app is not None
    assert (planned.app.image, planned.app.image_id) == ("served:1", None)
    assert planned.message == "the image `served:1` is pulled"
    assert planned.app is not None
    record = msgspec.to_builtins(planned.app)
    assert (record["image_id"], record["volumes"]) == (None, None)


class ServedEngine(FakeEngine):
    """An engine that finds these images on a server, and must not pull them."""

    def __init__(self, served: set[str]) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._served = served

    async def find_manifest(self, reference: str) -> None:
        self.asked.append(reference)
        if reference not in self._served:
            raise ImageNotFound("unknown")

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del progress
        raise AssertionError(f"{reference} is pulled")


async def test_a_rollback_to_an_image_that_is_gone_asks_its_server_by_the_digest(
    tmp_path: Path,
) -> None:
    engine = PullingEngine()
    engine.serve({"served:1": "s1", "served:2": "s2"})
    digest = engine.served["served:1"].digest
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image="served:1"), ASKER)
        await apps.update("web", AppChanges(image="served:2"), ASKER)
        await engine.remove_image("s1")

        planned = await apps.plan(CHANGES["roll back"](), ASKER)
        assert (planned.replaces_container, planned.message) == (
            True,
            f"the image `{digest}` is pulled",
        )
        assert planned.app is not None
        assert (planned.app.image, planned.app.revision) == ("served:1", 3)
        assert (engine.here(), (await apps.queries.one("web")).revision) == ({"s2"}, 2)

        del engine.by_digest[str(digest)]
        planned_to_fail = await outcome(apps.plan(CHANGES["roll back"](), ASKER))
        assert planned_to_fail == await outcome(apps.change(CHANGES["roll back"](), ASKER))
        assert "is not on this host any more" in planned_to_fail[1]


class EndlessPullEngine(FakeEngine):
    """An engine whose pulls never end."""

    def __init__(self) -> None:
        super().__init__()
        self.pulling = asyncio.Event()

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        progress(PullProgress(done_bytes=0, total_bytes=1))
        self.pulling.set()
        await asyncio.sleep(3600)
        raise AssertionError(f"{reference} was not to be pulled")


async def test_a_delete_that_would_end_a_pull_says_so_and_ends_none(tmp_path: Path) -> None:
    engine, background = EndlessPullEngine(), replace(ASKER, respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1"), background)
        await engine.pulling.wait()

        planned = await apps.plan(Delete("new"), ASKER)

        assert planned.app is None
        assert (await apps.queries.one("new")).state == "pulling"
        await apps.delete("new", ASKER)


async def test_a_stop_that_would_cancel_a_creation_is_answered_so_by_its_dry_run(
    tmp_path: Path,
) -> None:
    engine, background = EndlessPullEngine(), replace(ASKER, respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1"), background)
        await engine.pulling.wait()

        planned = await outcome(apps.plan(Stop("new"), ASKER))

        assert (await apps.queries.one("new")).state == "pulling"
        assert planned == await outcome(apps.stop("new", ASKER))
        assert "its creation was cancelled" in planned[1]


async def test_a_stop_that_would_cancel_a_rebuild_shows_the_app_as_it_is_then(
    tmp_path: Path,
) -> None:
    engine = EndlessPullEngine()
    engine.tag("served:1", replace(fake_image("s1"), local=False))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1", pull="missing"), ASKER)
        rebuilding = asyncio.create_task(apps.rebuild("new", ASKER))
        await engine.pulling.wait()

        planned = await apps.plan(Stop("new"), ASKER)
        stopped = await apps.stop("new", ASKER)

        assert shown(planned.app) == shown(stopped)
        assert "was cancelled" in str(stopped.message)
        with pytest.raises(AppError, match="was cancelled"):
            await rebuilding
