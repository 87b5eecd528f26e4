"""The images that the agent pulled stay for the revisions that are kept, and then go."""

import asyncio
import errno
import os
import sqlite3
import time
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.apps.admission.disk import DiskGuard, DiskSpace, flush_disks
from agent.apps.counters import AppCounters
from agent.apps.defaults import AppDefaults
from agent.apps.errors import OperationCancelled, StartFailed
from agent.apps.images.collector import UnneededImages
from agent.apps.images.pulled import ImageUse
from agent.apps.images.remover import ImageRemover
from agent.apps.repository.repository import AppRepository
from agent.apps.service.apps import Apps
from agent.engine.errors import DiskFull, ImageNotFound, ImageUnavailable
from agent.engine.models import ImageEvent
from agent.model import AppChanges, NewApp
from agent.state.history import MOST_REVISIONS, Pull
from agent.state.store import Store
from tests.support.agent.engines.fake_engine import IMAGE, IMAGE_IDS, FakeContainer, fake_image
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
# No disk of this machine is as empty.
FULL_DISK = replace(AT_ONCE, min_free_percent=100)
ONE, TWO, THREE = "s/app:1", "s/app:2", "s/app:3"
SERVED = {ONE: "p1", TWO: "p2", THREE: "p3"}


@pytest.fixture
def engine() -> PullingEngine:
    engine = PullingEngine()
    engine.serve(SERVED)
    return engine


def apps_of(
    folder: Path,
    engine: PullingEngine,
    *,
    defaults: AppDefaults = AT_ONCE,
    log: LogCapture | None = None,
) -> AbstractAsyncContextManager[Apps]:
    return running_apps(folder, engine, log or LogCapture(), defaults=defaults)


async def create(apps: Apps, image: str = ONE, name: str = "web") -> None:
    await apps.create(NewApp(name=name, image=image), ASKER)


async def update(apps: Apps, image: str) -> None:
    await apps.update("web", AppChanges(image=image), ASKER)


async def until_here(engine: PullingEngine, *images: str) -> None:
    """Wait until these of the server's images are on the host, and no other."""
    await async_until(lambda: asyncio.sleep(0, engine.here() == set(images)))


async def settled(apps: Apps, engine: PullingEngine) -> None:
    """Wait until the agent has looked after all images: it removes one at the end of each look."""
    for _ in range(2):  # the first may go in the middle of a look
        number = len(engine.pulls)
        engine.serve({f"marker:{number}": f"marker-{number}"})
        await create(apps, f"marker:{number}", "marker")
        await apps.delete("marker", ASKER)
        await until_gone(engine, f"marker-{number}")


async def until_gone(engine: PullingEngine, image_id: str) -> None:
    await async_until(lambda: asyncio.sleep(0, image_id not in engine.here()))


async def test_the_images_of_kept_revisions_stay_and_go_with_the_app(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        await settled(apps, engine)
        assert engine.here() == {"p1", "p2"}
        await apps.delete("web", ASKER)
        await until_here(engine)


async def test_an_image_goes_with_the_last_revision_that_has_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        for number in range(MOST_REVISIONS - 2):
            await apps.update("web", AppChanges(description=str(number)), ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1", "p2"}
        await apps.update("web", AppChanges(description="one more"), ASKER)
        await until_here(engine, "p2")

        assert (await apps.get("web")).state == "running"


async def test_an_image_that_an_update_pulled_in_vain_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def fail(step: str) -> None:
        if step == "before start":
            raise ImageUnavailable("it does not start")

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = fail
        with pytest.raises(Exception, match="does not start"):
            await update(apps, TWO)
        await until_here(engine, "p1")


@pytest.mark.parametrize("by_hand", [ONE, "s/app@sha256:p1", "s/app:other"])
async def test_what_the_agent_did_not_pull_stays(
    tmp_path: Path, engine: PullingEngine, by_hand: str
) -> None:
    engine.bring(by_hand, engine.served[ONE])
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, IMAGE, "local")
        await apps.delete("web", ASKER)
        await apps.delete("local", ASKER)
        await settled(apps, engine)

        assert engine.here() == {"p1"}
        assert await engine.image(IMAGE) is not None


async def test_what_somebody_removed_and_pulled_again_is_theirs(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
    engine.untag("p1")
    for name in (ONE, "s/app@sha256:p1"):
        engine.untag(name)
    async with apps_of(tmp_path, engine) as apps:
        await settled(apps, engine)
        engine.bring(ONE, engine.served[ONE])
        await apps.delete("web", ASKER)
        await settled(apps, engine)

        assert engine.here() == {"p1"}


async def test_an_image_with_the_tag_of_somebody_else_stays(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        image = await engine.image(ONE)
        assert image is not None
        engine.bring("mine:keep", image)
        await apps.delete("web", ASKER)
        await settled(apps, engine)

    assert engine.here() == {"p1"}
    told = [each["reason"] for each in log.entries if each["event"] == "image not removed yet"]
    assert told == ["it has a tag that the agent did not give it"]


async def test_a_tag_that_somebody_else_gives_an_image_while_it_is_pulled_keeps_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def tag(step: str) -> None:
        if step == "after pull":
            engine.at_step = lambda _: asyncio.sleep(0)
            engine.bring("mine:1", engine.served[ONE])

    engine.at_step = tag
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)

        image = await engine.image("mine:1")
        assert image is not None
        assert image.tags == {ONE, "mine:1"}


async def test_the_tag_of_a_pull_is_the_agents_however_the_reference_is_written(
    tmp_path: Path, engine: PullingEngine
) -> None:
    short, full = "shop", "docker.io/library/shop:latest"
    engine.serve({"shop:latest": "p4"})
    engine.served |= {short: engine.served["shop:latest"], full: engine.served["shop:latest"]}
    engine.full_tags = {short: "shop:latest", full: "shop:latest"}
    async with apps_of(tmp_path, engine) as apps:
        for reference in (short, full):
            await create(apps, reference)
            assert engine.here() == {"p4"}
            await apps.delete("web", ASKER)
            await until_here(engine)


async def test_an_image_with_two_tags_of_the_agent_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    engine.served["s/app:latest"] = engine.served[ONE]
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, "s/app:latest", "second")
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        await apps.delete("second", ASKER)
        await until_here(engine)


async def test_an_image_that_a_container_of_anybody_uses_stays(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        engine.state.containers["theirs"] = FakeContainer(
            id="theirs",
            name="theirs",
            image=ONE,
            labels={},
            env={},
            ports=[],
            volumes={},
            cpu=100,
            memory=64,
            image_id="p1",
            state="exited",
        )
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        # It was not even asked for: not every engine refuses it for a container that is stopped.
        assert "image not removed yet" not in [each["event"] for each in log.entries]
        del engine.state.containers["theirs"]
        await settled(apps, engine)
        await until_here(engine)


async def test_a_removal_that_fails_is_logged_once_and_tried_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    log = LogCapture()
    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine, log=log) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        engine.stuck.clear()
        await settled(apps, engine)
        await until_here(engine)

    told = [each for each in log.entries if each["event"] == "image not removed yet"]
    assert [each["log_level"] for each in told] == ["warning"]
    assert "p1" in [each["image"] for each in log.entries if each["event"] == "image removed"]


async def test_what_is_left_when_the_agent_ends_goes_at_its_next_start(
    tmp_path: Path, engine: PullingEngine
) -> None:
    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
    engine.stuck.clear()
    async with apps_of(tmp_path, engine):
        await until_here(engine)


async def test_no_image_goes_while_a_change_needs_it_and_any_other_does(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulled, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before create volume":
            pulled.set()
            await go_on.wait()

    async with apps_of(tmp_path, engine) as apps:
        engine.at_step = hold
        creation = asyncio.ensure_future(create(apps))
        await pulled.wait()
        engine.at_step = lambda _: asyncio.sleep(0)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        go_on.set()
        await creation
        await settled(apps, engine)

        assert engine.here() == {"p1"}
        assert (await apps.get("web")).state == "running"


async def test_while_an_image_is_pulled_that_one_stays_and_others_go(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulling, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before pull":
            pulling.set()
            await go_on.wait()

    engine.stuck = {"p1"}
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.delete("web", ASKER)
        await settled(apps, engine)
        engine.at_step = hold
        creation = asyncio.ensure_future(create(apps))
        await pulling.wait()
        engine.at_step = lambda _: asyncio.sleep(0)
        engine.stuck.clear()
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        go_on.set()
        await creation
        await apps.delete("web", ASKER)
        await until_here(engine)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_image_that_another_agent_removes_before_its_container_is_made_is_pulled_again(
    tmp_path: Path, engine: PullingEngine, *, fails: bool
) -> None:
    async def remove(step: str) -> None:
        if step == "after create volume":
            for name in (ONE, "p1", "s/app@sha256:p1"):
                engine.untag(name)
        if step == "before start" and fails:
            raise ImageUnavailable("it does not start")

    async with apps_of(tmp_path, engine) as apps:
        engine.at_step = remove
        if fails:
            with pytest.raises(StartFailed, match="does not start"):
                await create(apps)
            assert engine.state.volumes == {}
        else:
            await create(apps)
            assert (await apps.get("web")).state == "running"
    assert engine.pulls == [ONE, ONE]


async def test_an_image_that_is_removed_before_an_updated_container_is_made_is_pulled_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async def remove(step: str) -> None:
        if step == "before create":
            engine.at_step = lambda _: asyncio.sleep(0)
            for name in (TWO, "p2", "s/app@sha256:p2"):
                engine.untag(name)

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = remove
        await update(apps, TWO)

        assert (await apps.get("web")).image_id == "p2"
    assert engine.pulls == [ONE, TWO, TWO]


async def test_a_change_waits_for_the_removal_of_its_image_and_pulls_it_again(
    tmp_path: Path, engine: PullingEngine
) -> None:
    removing, go_on = asyncio.Event(), asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before remove image":
            removing.set()
            await go_on.wait()

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = hold
        await apps.delete("web", ASKER)
        await removing.wait()
        creation = asyncio.ensure_future(create(apps))
        await asyncio.sleep(0.05)
        go_on.set()
        await creation

        assert engine.here() == {"p1"}
    assert engine.pulls == [ONE, ONE]


async def test_an_image_that_is_gone_is_pulled_by_its_digest(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.serve({ONE: "newer"})
        await apps.rebuild("web", ASKER)
        for name in ("p1", "s/app@sha256:p1"):
            engine.untag(name)
        back = await apps.rollback("web", None, ASKER)
        history = await apps.history("web")

        assert (back.image_id, back.image, back.revision) == ("p1", ONE, 3)
        assert engine.pulls == [ONE, ONE, "s/app@sha256:p1"]
        assert [each.digest for each in history] == [
            "s/app@sha256:p1",
            "s/app@sha256:newer",
            "s/app@sha256:p1",
        ]
        await apps.delete("web", ASKER)
        await until_here(engine)


@pytest.mark.parametrize(
    "forget",
    ["UPDATE revisions SET digest = NULL", "UPDATE revisions SET digest = NULL, image_id = NULL"],
)
async def test_the_image_of_an_app_of_an_earlier_version_is_found_out_at_the_first_look(
    tmp_path: Path, engine: PullingEngine, forget: str
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await create(apps, IMAGE, "local")
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database, database:
        database.execute(forget)
    async with apps_of(tmp_path, engine) as apps:

        async def is_known() -> bool:
            (web,) = await apps.history("web")
            (local,) = await apps.history("local")
            return (web.image_id, web.digest, local.image_id, local.digest) == (
                *("p1", "s/app@sha256:p1"),
                *(IMAGE_IDS[IMAGE], None),
            )

        await async_until(is_known)


async def test_a_stop_ends_a_rollback_that_pulls_and_nothing_of_it_is_left(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulling = asyncio.Event()

    async def hold(step: str) -> None:
        if step == "before pull":
            pulling.set()
            await asyncio.Event().wait()

    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        for name in (ONE, "p1", "s/app@sha256:p1"):
            engine.untag(name)
        engine.at_step = hold
        rollback = asyncio.ensure_future(apps.rollback("web", 1, ASKER))
        await pulling.wait()
        busy = await apps.get("web")
        stopped = await apps.stop("web", ASKER)
        with pytest.raises(OperationCancelled, match="the rollback of app `web` was cancelled"):
            await rollback

    assert busy.progress is not None
    assert (busy.state, busy.progress.operation) == ("updating", "rollback")
    assert (stopped.image, stopped.revision, stopped.state) == (TWO, 2, "exited")


async def test_an_image_that_is_gone_for_good_leaves_the_app_as_it_is_and_says_the_way_out(
    tmp_path: Path, engine: PullingEngine
) -> None:
    local = "made-here:1"
    engine.tag(local, fake_image("m1"))
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, local)
        await update(apps, TWO)
        for name in (local, "m1", "p1", ONE, "s/app@sha256:p1"):
            engine.untag(name)
        engine.by_digest.clear()
        with pytest.raises(ImageNotFound, match=r"s/app@sha256:p1.*docker load"):
            await apps.rollback("web", 1, ASKER)
        with pytest.raises(ImageUnavailable, match=r"no digest at a server.*docker load"):
            await apps.rollback("web", 2, ASKER)

        record = await apps.get("web")
        assert (record.state, record.image, record.revision) == ("running", TWO, 3)


async def three_revisions(folder: Path, engine: PullingEngine) -> None:
    """Leave a stopped app that has run three images of the server."""
    async with apps_of(folder, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        await update(apps, THREE)
        await apps.stop("web", ASKER)
        await settled(apps, engine)
    assert engine.here() == {"p1", "p2", "p3"}


async def test_while_the_disk_is_full_images_of_old_revisions_go_before_a_change_is_refused(
    tmp_path: Path, engine: PullingEngine
) -> None:
    await three_revisions(tmp_path, engine)
    engine.state.containers.clear()
    engine.data_root = f"{tmp_path}"
    log = LogCapture()
    async with apps_of(tmp_path, engine, defaults=FULL_DISK, log=log) as apps:
        await until_here(engine, "p3")
        with pytest.raises(DiskFull):
            await apps.rebuild("web", ASKER)
        history = await apps.history("web")
    engine.data_root = "/nowhere"
    async with apps_of(tmp_path, engine) as apps:
        await apps.rollback("web", 1, ASKER)

    assert [each.image_id for each in history] == ["p3", "p2", "p1"]
    told = [each for each in log.entries if each["event"] == "image removed"]
    assert [(each["image"], each["reason"]) for each in told] == [("p1", "disk"), ("p2", "disk")]
    assert engine.pulls[-1] == "s/app@sha256:p1"


async def test_no_more_images_go_than_the_disk_needs_and_the_least_recent_go_first(
    tmp_path: Path, engine: PullingEngine
) -> None:
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        await apps.rollback("web", 1, ASKER)  # so the second image is the least recent
        await update(apps, THREE)
    full = len(engine.here())

    def statvfs(path: str) -> os.statvfs_result:
        if path != "/engine":
            raise OSError(errno.ENOENT, path)
        free = 0 if len(engine.here()) == full else 1000
        return os.statvfs_result((4096, 4096, 1000, free, free, 1000, 1000, 1000, 0, 255))

    store = Store(tmp_path / "agent.db")
    repository = AppRepository(store)
    repository.load(await store.open())
    guard = DiskGuard(min_free_percent=5, database_directory=tmp_path, statvfs=statvfs)
    log = structlog.wrap_logger(None, processors=[LogCapture()])
    counters = AppCounters(CollectorRegistry())
    remover = ImageRemover(
        engine=engine, repository=repository, use=ImageUse(), counters=counters, log=log
    )
    unneeded = UnneededImages(
        engine=engine, repository=repository, remover=remover, disk_guard=guard
    )

    await DiskSpace(guard=guard, free=unneeded.free, flush=flush_disks).check("/engine")
    await repository.close()

    assert engine.here() == {"p1", "p3"}


@dataclass
class BrokenOffPull:
    """A database as an agent left it that was killed while the engine pulled an image."""

    folder: Path
    engine: PullingEngine
    before: frozenset[str] = frozenset()

    async def write(self, *, seconds_ago: float = 600) -> None:
        """Write the pull down as the agent did before it asked the engine."""
        store = Store(self.folder / "agent.db")
        await store.open()
        await store.adopt([])
        moment = time.time() - seconds_ago
        images = dict.fromkeys(self.before, frozenset[str]())
        await store.begin_pull(Pull(reference=ONE, began_at=moment, alive_at=moment, images=images))
        await store.close()

    def bring(self, *, seconds_ago: float, action: str = "pull") -> None:
        """Let the image be pulled at that time."""
        self.engine.bring(ONE, self.engine.served[ONE])
        self.happened(action, seconds_ago=seconds_ago)

    def happened(self, action: str, *, seconds_ago: float) -> None:
        event = ImageEvent(action=action, time=time.time() - seconds_ago)
        self.engine.image_history.setdefault(ONE, []).append(event)


async def test_a_pull_is_written_down_before_the_engine_is_asked_and_until_it_has_ended(
    tmp_path: Path, engine: PullingEngine
) -> None:
    seen = dict[str, list[str]]()

    async def look(step: str) -> None:
        if step.endswith(" pull"):
            with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
                rows = database.execute("SELECT reference FROM pulls").fetchall()
            seen[step] = [row[0] for row in rows]

    engine.at_step = look
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        engine.at_step = lambda _: asyncio.sleep(0)
        with pytest.raises(ImageNotFound):
            await create(apps, "nowhere:1", "other")

    assert seen == {"before pull": [ONE], "after pull": [ONE]}
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT reference FROM pulls").fetchall() == []


async def test_an_image_whose_pull_ended_as_the_agent_was_killed_goes_if_nobody_needs_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    broken_off = BrokenOffPull(tmp_path, engine)
    await broken_off.write()
    broken_off.bring(seconds_ago=598)
    async with apps_of(tmp_path, engine):
        await until_here(engine)


async def test_an_image_whose_pull_broke_off_stays_for_an_app_that_is_created_with_it(
    tmp_path: Path, engine: PullingEngine
) -> None:
    broken_off = BrokenOffPull(tmp_path, engine)
    await broken_off.write(seconds_ago=3)
    broken_off.bring(seconds_ago=2)
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await settled(apps, engine)
        assert engine.here() == {"p1"}
        await apps.delete("web", ASKER)
        await until_here(engine)


LATER_EVENTS = {"pulled twice": "pull", "tagged": "tag", "loaded": "load"}


@pytest.mark.parametrize(
    "case", [*LATER_EVENTS, "pulled later", "here before", "forgotten by the engine"]
)
async def test_an_image_that_somebody_else_may_have_brought_stays(
    tmp_path: Path, engine: PullingEngine, case: str
) -> None:
    before = frozenset({"p1"} if case == "here before" else ())
    broken_off = BrokenOffPull(tmp_path, engine, before)
    await broken_off.write()
    broken_off.bring(seconds_ago=300 if case == "pulled later" else 598)
    if case in LATER_EVENTS:
        broken_off.happened(LATER_EVENTS[case], seconds_ago=300)
    if case == "forgotten by the engine":
        engine.image_history.clear()
    async with apps_of(tmp_path, engine) as apps:
        await settled(apps, engine)

        assert engine.here() == {"p1"}
    with closing(sqlite3.connect(tmp_path / "agent.db")) as database:
        assert database.execute("SELECT reference FROM pulls").fetchall() == []


async def test_an_image_whose_pull_was_cancelled_too_late_goes(
    tmp_path: Path, engine: PullingEngine
) -> None:
    pulled = asyncio.Event()

    async def hold(step: str) -> None:
        if step == "after pull":
            pulled.set()
            await asyncio.sleep(3600)

    engine.at_step = hold
    async with apps_of(tmp_path, engine) as apps:
        creation = asyncio.ensure_future(create(apps))
        await pulled.wait()
        await apps.delete("web", ASKER)
        with pytest.raises(OperationCancelled):
            await creation
        assert engine.here() == {"p1"}
    engine.at_step = lambda _: asyncio.sleep(0)
    async with apps_of(tmp_path, engine):
        await until_here(engine)
