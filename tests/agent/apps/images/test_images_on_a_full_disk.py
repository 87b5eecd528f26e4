"""While the disk is full, images of old revisions go."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.admission.disk import DiskGuard
from agent.apps.images.pulled import ImageUse
from agent.apps.images.unneeded import UnneededImages
from agent.engine.errors import DiskFull
from agent.engine.models import ListedImage
from tests.support.agent.apps.hosts import opened_host
from tests.support.agent.apps.pulled_apps import (
    FULL_DISK,
    SERVED,
    THREE,
    TWO,
    apps_of,
    create,
    settled,
    until_here,
    update,
)
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.running_apps import ASKER

pytestmark = pytest.mark.slow


async def three_revisions(folder: Path, engine: PullingEngine) -> None:
    """Leave a stopped app that has run three images of the server."""
    async with apps_of(folder, engine) as apps:
        await create(apps)
        await update(apps, TWO)
        await update(apps, THREE)
        await apps.stop("web", ASKER)
        await settled(apps, engine)
    assert engine.here() == {"p1", "p2", "p3"}


async def test_while_the_disk_is_full_images_of_old_revisions_go_before_a_change_is_rejected(
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
    reported = [each for each in log.entries if each["event"] == "image removed"]
    assert [(each["image"], each["reason"]) for each in reported] == [
        ("p1", "disk"),
        ("p2", "disk"),
    ]
    assert engine.pulls[-1] == "s/app@sha256:p1"


class ObservedEngine(PullingEngine):
    """An engine that notes when its images are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = asyncio.Event()

    async def images(self) -> list[ListedImage]:
        self.listed.set()
        return await super().images()


async def test_the_image_of_a_rollback_does_not_go_to_make_room_for_it(tmp_path: Path) -> None:
    engine = ObservedEngine()
    engine.serve(SERVED)
    await three_revisions(tmp_path, engine)
    engine.listed.clear()
    async with apps_of(tmp_path, engine, defaults=FULL_DISK) as apps:
        await engine.listed.wait()  # the next regular look comes in a minute
        engine.data_root = f"{tmp_path}"
        with pytest.raises(DiskFull):
            await apps.rollback("web", 1, ASKER)

    assert engine.here() == {"p1", "p3"}


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

    guard = DiskGuard(5, tmp_path, statvfs=statvfs)
    async with opened_host(engine, tmp_path) as host:
        unneeded = UnneededImages(host.context, ImageUse(), guard)
        engine.data_root = "/engine"
        await unneeded.make_room()

    assert engine.here() == {"p1", "p3"}
