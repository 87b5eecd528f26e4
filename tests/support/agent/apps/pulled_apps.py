"""AskedApps of images that a played engine pulls, and what is left of the images."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from structlog.testing import LogCapture

from agent.apps.defaults import AppDefaults
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.pulling_engine import PullingEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, AskedApps, running_apps
from tests.support.waiting import async_until

AT_ONCE = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)
# No disk of this machine is as empty.
FULL_DISK = replace(AT_ONCE, min_free_percent=100)
ONE, TWO, THREE = "s/app:1", "s/app:2", "s/app:3"
SERVED = {ONE: "p1", TWO: "p2", THREE: "p3"}


def apps_of(
    folder: Path,
    engine: PullingEngine,
    *,
    defaults: AppDefaults = AT_ONCE,
    log: LogCapture | None = None,
) -> AbstractAsyncContextManager[AskedApps]:
    """Run the agent's apps on an engine that pulls."""
    return running_apps(folder, engine, log or LogCapture(), defaults=defaults)


async def create(apps: AskedApps, image: str = ONE, name: str = "web") -> None:
    """Create an app."""
    await apps.create(NewApp(name=name, image=image), ASKER)


async def update(apps: AskedApps, image: str) -> None:
    """Change the image of the app `web`."""
    await apps.update("web", AppChanges(image=image), ASKER)


async def until_here(engine: PullingEngine, *images: str) -> None:
    """Wait until these of the server's images are on the host, and no other."""
    await async_until(lambda: asyncio.sleep(0, engine.here() == set(images)))


async def settled(apps: AskedApps, engine: PullingEngine) -> None:
    """Wait until the agent has looked after all images: it removes one at the end of each look."""
    for _ in range(2):  # the first may go in the middle of a look
        number = len(engine.pulls)
        engine.serve({f"marker:{number}": f"marker-{number}"})
        await create(apps, f"marker:{number}", "marker")
        await apps.delete("marker", ASKER)
        await until_gone(engine, f"marker-{number}")


async def until_gone(engine: PullingEngine, image_id: str) -> None:
    """Wait until an image is not on the host any more."""
    await async_until(lambda: asyncio.sleep(0, image_id not in engine.here()))
