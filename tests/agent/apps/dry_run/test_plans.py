"""A dry run says what the change then does, or fails as the change does, and changes nothing."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.dry_run.dry_runs import Plan
from agent.apps.errors import AppBusy, AppError, PortInUse
from agent.apps.operations.runner import Requester
from agent.apps.service.apps import Apps
from agent.apps.views.apps import AppView
from agent.engine.errors import DiskFull, EngineError, ImageNotFound
from agent.engine.models import PullProgress
from agent.model import AppChanges, HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import (
    DATA_IMAGE,
    IMAGE,
    OTHER_IMAGE,
    FakeEngine,
    fake_image,
)
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.agent.tars import packed
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow
PASSWORD = "correct horse battery"
Ask = Callable[[Apps, Requester], Awaitable[AppView | None]]
# What is known only afterwards: of the container, its image, and of ports that are picked.
LATER = {
    *("container_id", "image_id", "created_at", "ssh_port", "http_port"),
    *("started_at", "finished_at", "exit_code", "oom_killed"),
}


async def sent() -> AsyncIterator[bytes]:
    yield packed({"srv": None, "srv/a": b"new"})


async def nonsense() -> AsyncIterator[bytes]:
    yield b"no tar" * 200


CHANGES: dict[str, Ask] = {
    "create": lambda apps, asker: apps.create(NewApp(name="new", image=IMAGE), asker),
    "create with all": lambda apps, asker: apps.create(
        NewApp(
            name="new",
            image=DATA_IMAGE,
            ssh_port=21111,
            http_port=21112,
            cpu=20,
            memory=64,
            env={"A": "b"},
            data=("/srv",),
            health=HealthCheck(path="/"),
        ),
        asker,
    ),
    "create a name in use": lambda apps, asker: apps.create(NewApp(name="web", image=IMAGE), asker),
    "create with a bad name": lambda apps, asker: apps.create(NewApp(name="_", image=IMAGE), asker),
    "create with a port in use": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, http_port=21001), asker
    ),
    "create with too much memory": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, memory=1 << 20), asker
    ),
    "create with more memory than may be promised": lambda apps, asker: apps.create(
        NewApp(name="new", image=IMAGE, memory=4000), asker
    ),
    "create from an image that is nowhere": lambda apps, asker: apps.create(
        NewApp(name="new", image="nowhere:1"), asker
    ),
    "create under a foreign container's name": lambda apps, asker: apps.create(
        NewApp(name="theirs", image=IMAGE), asker
    ),
    "change the record": lambda apps, asker: apps.update(
        "web", AppChanges(description="Shop"), asker
    ),
    "change limits": lambda apps, asker: apps.update("web", AppChanges(memory=64, cpu=70), asker),
    "change nothing": lambda apps, asker: apps.update("web", AppChanges(memory=32), asker),
    "change env": lambda apps, asker: apps.update("web", AppChanges(env={"A": "c"}), asker),
    "change the image": lambda apps, asker: apps.update(
        "web", AppChanges(image=OTHER_IMAGE), asker
    ),
    "change to an image that is nowhere": lambda apps, asker: apps.update(
        "web", AppChanges(image="nowhere:1"), asker
    ),
    "change to a port in use": lambda apps, asker: apps.update(
        "web", AppChanges(http_port=21003), asker
    ),
    "change to equal ports": lambda apps, asker: apps.update(
        "web", AppChanges(ssh_port=21001), asker
    ),
    "change a stopped app": lambda apps, asker: apps.update(
        "off", AppChanges(env={"A": "c"}), asker
    ),
    "start": lambda apps, asker: apps.start("off", asker),
    "start what runs": lambda apps, asker: apps.start("web", asker),
    "start what has lost its container": lambda apps, asker: apps.start("lost", asker),
    "stop": lambda apps, asker: apps.stop("web", asker),
    "stop what is stopped": lambda apps, asker: apps.stop("off", asker),
    "stop what is not there": lambda apps, asker: apps.stop("nobody", asker),
    "rebuild": lambda apps, asker: apps.rebuild("web", asker),
    "rebuild what is stopped": lambda apps, asker: apps.rebuild("off", asker),
    "roll back": lambda apps, asker: apps.rollback("web", None, asker),
    "roll back to the present revision": lambda apps, asker: apps.rollback("web", 2, asker),
    "roll back to a revision that is not there": lambda apps, asker: apps.rollback("web", 9, asker),
    "roll back what was never changed": lambda apps, asker: apps.rollback("off", None, asker),
    "set a password": lambda apps, asker: apps.set_password("web", PASSWORD, asker),
    "set a password of a stopped app": lambda apps, asker: apps.set_password(
        "off", PASSWORD, asker
    ),
    "set a bad password": lambda apps, asker: apps.set_password("web", "x", asker),
    "add a label": lambda apps, asker: apps.add_label("web", "a:b", asker),
    "add a bad label": lambda apps, asker: apps.add_label("web", "ab", asker),
    "remove a label that is not there": lambda apps, asker: apps.remove_label("web", "a:b", asker),
    "restore": lambda apps, asker: apps.restore("off", sent(), asker),
    "restore what runs": lambda apps, asker: apps.restore("web", sent(), asker),
    "restore nonsense": lambda apps, asker: apps.restore("off", nonsense(), asker),
    "delete": lambda apps, asker: apps.delete("web", asker),
    "delete and keep the data": lambda apps, asker: apps.delete("off", asker, keep_data=True),
}
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
    **dict.fromkeys(("change env", "change the image", "rebuild", "roll back"), 2),
    **dict.fromkeys(("stop", "delete"), None),
}


async def prepare(apps: Apps, engine: FakeEngine) -> None:
    """Make an app that runs, with two revisions, one that is stopped, and one without container."""
    for number, name in enumerate(("web", "off", "lost")):
        ports = {"ssh_port": 21000 + 2 * number, "http_port": 21001 + 2 * number}
        await apps.create(NewApp(name=name, image=IMAGE, env={"A": "b"}, **ports), ASKER)
    await apps.update("web", AppChanges(env={"A": "z"}), ASKER)
    await apps.stop("off", ASKER)
    lost = await apps.get("lost")
    del engine.state.containers[str(lost.container_id)]
    theirs = msgspec.structs.replace(next(iter(engine.state.containers.values())))
    theirs.id, theirs.name, theirs.labels, theirs.ports = "theirs", "theirs", {}, []
    engine.state.containers["theirs"] = theirs


def everything(folder: Path, engine: FakeEngine) -> Any:
    """Return all that could change: the database with its events, and what the engine has."""
    with closing(sqlite3.connect(folder / "agent.db")) as database:
        tables = list(database.iterdump())
    return tables, msgspec.to_builtins(engine.state), engine.networks


async def outcome(change: Awaitable[Any]) -> Any:
    """Return what a change returns, or the error that it raises."""
    try:
        return await change
    except (AppError, EngineError) as error:
        return type(error), str(error)


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

        planned = await outcome(apps.plan(name_of_app, ASKER, change))

        assert everything(tmp_path, engine) == before
        happened = await outcome(change(apps, ASKER))
    if isinstance(happened, tuple):
        assert planned == happened
        return
    assert isinstance(planned, Plan)
    assert shown(planned.app) == shown(happened)
    assert planned.replaces_container is (name in REPLACING)
    assert planned.seconds_without_service == SECONDS.get(name, 0)


async def test_an_image_that_would_be_pulled_is_asked_for_and_not_pulled(tmp_path: Path) -> None:
    engine = ServedEngine({"served:1"})
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)

        planned = await apps.plan(
            "web", ASKER, lambda dry, asker: dry.update("web", AppChanges(image="served:1"), asker)
        )
        with pytest.raises(ImageNotFound, match=r"the image `other:1` cannot be had: unknown"):
            await apps.plan(
                "new",
                ASKER,
                lambda dry, asker: dry.create(NewApp(name="new", image="other:1"), asker),
            )

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

        planned = await apps.plan("web", ASKER, CHANGES["roll back"])
        assert (planned.replaces_container, planned.message) == (
            True,
            f"the image `{digest}` is pulled",
        )
        assert planned.app is not None
        assert (planned.app.image, planned.app.revision) == ("served:1", 3)
        assert (engine.here(), (await apps.get("web")).revision) == ({"s2"}, 2)

        del engine.by_digest[str(digest)]
        planned_to_fail = await outcome(apps.plan("web", ASKER, CHANGES["roll back"]))
        assert planned_to_fail == await outcome(CHANGES["roll back"](apps, ASKER))
        assert "is not on this host any more" in planned_to_fail[1]


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
            await apps.plan("web", replace(ASKER, wait_seconds=0), CHANGES["change env"])
        planning = asyncio.create_task(apps.plan("web", ASKER, CHANGES["change env"]))
        going_on.set()
        await stopping

        assert (await planning).seconds_without_service == 0


async def is_busy(apps: Apps) -> bool:
    return (await apps.get("web")).progress is not None


async def test_a_port_that_somebody_took_meanwhile_is_told(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await prepare(apps, engine)
        port = (await apps.get("off")).http_port
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()

            with pytest.raises(PortInUse, match=f"port {port} of app `off` is held by another"):
                await apps.plan("off", ASKER, CHANGES["start"])


async def test_an_app_that_moves_to_the_network_of_isolated_apps_is_told_so(tmp_path: Path) -> None:
    engine, isolated = FakeEngine(), replace(AT_ONCE, isolated=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=isolated) as apps:
        planned = await apps.plan("web", ASKER, CHANGES["rebuild"])
        unmoved = await apps.plan("web", ASKER, CHANGES["change the record"])

    assert "into the network `rollcall`" in str(planned.message)
    assert unmoved.message is None


async def test_an_app_that_stays_in_the_default_network_is_told_nothing_whatever_its_name(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        (container,) = engine.state.containers.values()
        container.network = "bridge"  # as Docker 26 and newer call it
        planned = await apps.plan("web", ASKER, CHANGES["rebuild"])

    assert (planned.replaces_container, planned.message) == (True, None)


async def test_what_one_dry_run_finds_healthy_is_not_healthy_in_another(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        check = HealthCheck(path="/", interval_seconds=3600)
        await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)
        await apps.plan("web", ASKER, CHANGES["change env"])

        planned = await apps.plan("new", ASKER, CHANGES["create with all"])

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

        await apps.plan("off", ASKER, CHANGES["restore"])
        assert flushed == []

        await CHANGES["restore"](apps, ASKER)
        assert flushed == ["disks"]


async def test_a_disk_that_is_too_full_is_told_as_by_the_change(tmp_path: Path) -> None:
    full = replace(AT_ONCE, min_free_percent=100)
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=full) as apps:
        planned = await outcome(apps.plan("new", ASKER, CHANGES["create"]))

        assert planned == await outcome(CHANGES["create"](apps, ASKER))
        assert planned[0] is DiskFull


class EndlessPullEngine(FakeEngine):
    """An engine that is told to pull, and never gets done with it."""

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

        planned = await apps.plan(
            "new", ASKER, lambda dry, asker: dry.delete("new", asker), ends_pulls=True
        )

        assert planned.app is None
        assert (await apps.get("new")).state == "pulling"
        await apps.delete("new", ASKER)


async def test_a_stop_that_would_cancel_a_creation_is_answered_so_by_its_dry_run(
    tmp_path: Path,
) -> None:
    engine, background = EndlessPullEngine(), replace(ASKER, respond_async=True)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1"), background)
        await engine.pulling.wait()

        planned = await outcome(apps.plan("new", ASKER, stop_new, ends_pulls=True))

        assert (await apps.get("new")).state == "pulling"
        assert planned == await outcome(stop_new(apps, ASKER))
        assert "its creation was cancelled" in planned[1]


async def stop_new(apps: Apps, asker: Requester) -> AppView:
    return await apps.stop("new", asker)


async def test_a_stop_that_would_cancel_a_rebuild_shows_the_app_as_it_is_then(
    tmp_path: Path,
) -> None:
    engine = EndlessPullEngine()
    engine.tag("served:1", replace(fake_image("s1"), local=False))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="new", image="served:1", pull="missing"), ASKER)
        rebuilding = asyncio.create_task(apps.rebuild("new", ASKER))
        await engine.pulling.wait()

        planned = await apps.plan("new", ASKER, stop_new, ends_pulls=True)
        stopped = await stop_new(apps, ASKER)

        assert shown(planned.app) == shown(stopped)
        assert "was cancelled" in str(stopped.message)
        with pytest.raises(AppError, match="was cancelled"):
            await rebuilding


def shown(view: AppView | None) -> Any:
    """Return the part of a record that is known beforehand."""
    if view is None:
        return None
    fields = msgspec.to_builtins(view)
    if "volumes" in fields:  # those of restored data have the operation in their names
        fields["volumes"] = {path: name[:12] for path, name in fields["volumes"].items()}
    return {field: value for field, value in fields.items() if field not in LATER}
