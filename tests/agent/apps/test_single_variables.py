"""Single variables of `env` are changed within the turn of their app."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.errors import InvalidApp
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

pytestmark = pytest.mark.slow


async def test_changes_of_several_clients_at_once_are_all_made(tmp_path: Path) -> None:
    changes = [AppChanges(env_set={f"N{each}": "new"}) for each in range(3)]
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, env={"A": "1", "B": "2"}), ASKER)

        removal = AppChanges(env_set={"A": "3"}, env_unset=("B", "NONE"))
        await asyncio.gather(*(apps.update("web", each, ASKER) for each in [*changes, removal]))

        after = await apps.queries.one("web")
    assert after.env == {"A": "3", "N0": "new", "N1": "new", "N2": "new"}


@pytest.mark.parametrize(
    "changes",
    [AppChanges(env_set={"A": "1"}), AppChanges(env_unset=("B",)), AppChanges(env_set={})],
)
async def test_without_a_difference_nothing_is_replaced(
    tmp_path: Path, changes: AppChanges
) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        before = await apps.create(NewApp(name="web", image=IMAGE, env={"A": "1"}), ASKER)
        assert await apps.update("web", changes, ASKER) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (AppChanges(env={}, env_set={"A": "1"}), "leave out `env_set`"),
        (AppChanges(env={}, env_unset=("A",)), "leave out `env_set`"),
        (AppChanges(env_set={"A": "1"}, env_unset=("A",)), "both hold A"),
        (AppChanges(env_set={"1A": ""}), "`env_set` holds the name '1A'"),
        (AppChanges(env_set={"A": "\0"}), r"`env_set\.A` holds a NUL"),
        (AppChanges(env_unset=("A=1",)), "`env_unset` holds 'A=1'"),
        (AppChanges(env_set={"B": "x" * 20_000}), "`env` is larger"),
    ],
)
async def test_what_contradicts_itself_is_rejected_and_changes_nothing(
    tmp_path: Path, changes: AppChanges, message: str
) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        app = NewApp(name="web", image=IMAGE, env={"A": "x" * 20_000})
        before = await apps.create(app, ASKER)
        with pytest.raises(InvalidApp, match=message):
            await apps.update("web", changes, ASKER)
        assert await apps.queries.one("web") == before
