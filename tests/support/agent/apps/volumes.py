"""An app over an engine in memory, and the volumes of its paths."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from structlog.testing import LogCapture

from agent.apps.containers.volumes import volume_name
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps

FIRST = volume_name("web")


def digested(path: str) -> str:
    """Return the name of the volume of a path that is not the first one."""
    return volume_name("web", path)


def apps_of(
    folder: Path, engine: FakeEngine, log: LogCapture | None = None, **options: Any
) -> AbstractAsyncContextManager[AskedApps]:
    """Run the agent's apps on an engine in memory."""
    return running_apps(folder, engine, log or LogCapture(), **{"defaults": AT_ONCE, **options})


async def create(apps: AskedApps, image: str = IMAGE, **fields: Any) -> dict[str, str]:
    """Create the app; return its map."""
    return (await apps.create(NewApp(name="web", image=image, **fields), ASKER)).volumes


async def update(apps: AskedApps, **fields: Any) -> dict[str, str]:
    """Update the app; return its map."""
    return (await apps.update("web", AppChanges(**fields), ASKER)).volumes


def mounted(engine: FakeEngine) -> dict[str, str]:
    """Return the volumes in the only container, by path."""
    (container,) = engine.state.containers.values()
    return container.volumes
