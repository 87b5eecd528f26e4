"""An app over an engine in memory, whose changes are revisions."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from structlog.testing import LogCapture

from agent.apps.defaults import AppDefaults
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, fake_image
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps

OTHER_ASKER = replace(ASKER, name="deploy")
NEWER = fake_image("newer")


def apps_of(
    folder: Path, engine: FakeEngine, defaults: AppDefaults = AT_ONCE
) -> AbstractAsyncContextManager[AskedApps]:
    """Run the agent's apps on an engine in memory."""
    return running_apps(folder, engine, LogCapture(), defaults=defaults)


async def create(apps: AskedApps, **fields: Any) -> None:
    """Create the app."""
    await apps.create(NewApp(name="web", image=IMAGE, **fields), ASKER)


async def numbers(apps: AskedApps) -> list[int]:
    """Return the numbers of the app's revisions, the newest first."""
    return [each.revision for each in await apps.history("web")]
