"""Checks that cannot be, or that this host does not allow, are refused by their fields."""

from pathlib import Path

import pytest

from agent.apps.errors import InvalidApp
from agent.model import HealthCheck, NewApp
from tests.support.agent.apps.checked_apps import NEW, apps_of
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "field"),
    [
        (HealthCheck(), "health"),
        (HealthCheck(path="/", command=("true",)), "health"),
        (HealthCheck(path="healthz"), "health.path"),
        (HealthCheck(path="/a b"), "health.path"),
        (HealthCheck(path="/ä"), "health.path"),
        (HealthCheck(path="/\r\nHost: x"), "health.path"),
        (HealthCheck(command=()), "health.command"),
        (HealthCheck(command=("",)), "health.command"),
        (HealthCheck(command=("a\0",)), "health.command"),
        (HealthCheck(command=("x" * 9000,)), "health.command"),
    ],
)
async def test_a_check_that_cannot_be_is_refused_by_its_field(
    tmp_path: Path, check: HealthCheck, field: str
) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        with pytest.raises(InvalidApp, match=f"`{field}`"):
            await apps.create(NewApp(name="web", image=IMAGE, health=check), ASKER)
        assert await apps.queries.all() == []


@pytest.mark.slow
async def test_a_command_is_refused_where_apps_may_have_none(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine(), allow_command=False) as apps:
        with pytest.raises(InvalidApp, match=r"`health\.command`.*allow_command"):
            await apps.create(NEW, ASKER)
        await apps.create(NewApp(name="web", image=IMAGE, health=HealthCheck(path="/")), ASKER)
