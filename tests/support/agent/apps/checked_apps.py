"""AskedApps with a check of their health, over an engine in memory."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from agent.model import HealthCheck, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import AskedApps, running_apps
from tests.support.waiting import async_until

AT_ONCE = replace(DEFAULTS, settle_seconds=0, healthy_seconds=0, min_free_percent=0)
CHECK = HealthCheck(command=("check",), interval_seconds=1, timeout_seconds=1, retries=2)
NEW = NewApp(name="web", image=IMAGE, health=CHECK)


class Program:
    """The command of a check, whose exit code the test sets."""

    def __init__(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code

    async def __call__(self, _container_id: str) -> int:
        return self.exit_code


def apps_of(
    folder: Path,
    engine: FakeEngine,
    *,
    log: LogCapture | None = None,
    metrics: CollectorRegistry | None = None,
    **defaults: Any,
) -> AbstractAsyncContextManager[AskedApps]:
    """Run the agent's apps on an engine in memory."""
    return running_apps(
        folder,
        engine,
        log or LogCapture(),
        defaults=replace(AT_ONCE, **defaults),
        metrics=metrics,
    )


async def until_healthy(apps: AskedApps, *, is_so: bool | None) -> None:
    """Wait until the list and the record of the only app say so; None if it is not known."""

    async def found() -> bool:
        (listed,) = await apps.queries.all()
        return listed.healthy is (await apps.queries.one("web")).healthy is is_so

    await async_until(found)


def replace_check(**fields: Any) -> HealthCheck:
    """Return a check by a command, with these fields in place of its own."""
    values = {"command": ("check",), "interval_seconds": 1, "timeout_seconds": 1, **fields}
    return HealthCheck(**values)
