"""How many apps there may be, and how large they may be together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.admission.admission import MOST_APPS, MOST_BYTES
from agent.apps.errors import TooManyApps
from agent.apps.service.apps import Apps
from agent.model import App, AppChanges, NewApp
from agent.state.database import AgentDatabase
from runtime.turns import share
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

LARGE = {"A": "x" * 25_000}


def failed_app(name: str, env: dict[str, str]) -> App:
    """Return an app whose creation failed: it has no container."""
    return App(
        name=name,
        image=IMAGE,
        ssh_port=1,
        http_port=2,
        cpu=1,
        memory=6,
        env=env,
        created_at="2026-01-01T00:00:00Z",
        failed=True,
    )


def by_team(name: str) -> str:
    """Return the keys for some apps that an app belongs to: those of a team."""
    return "other,team" if name.startswith("team-") else ""


@asynccontextmanager
async def running_beside(
    folder: Path, *names: str, env: dict[str, str] | None = None
) -> AsyncIterator[Apps]:
    """Run apps beside failed ones of these names."""
    store = AgentDatabase(folder / "agent.db")
    await store.open()
    await store.adopt([failed_app(name, env or {}) for name in names])
    await store.close()
    async with running_apps(
        folder, FakeEngine(), LogCapture(), defaults=AT_ONCE, holders=by_team
    ) as apps:
        yield apps


def names(count: int, prefix: str) -> list[str]:
    """Return so many names."""
    return [f"{prefix}-{number}" for number in range(count)]


async def test_there_are_only_so_many_apps_failed_ones_too(tmp_path: Path) -> None:
    async with running_beside(tmp_path, *names(MOST_APPS - 1, "old")) as apps:
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        with pytest.raises(TooManyApps, match="there are 500 other apps, and may be 500 in all"):
            await apps.create(NewApp(name="next", image=IMAGE), ASKER)
        await apps.update("web", AppChanges(env=LARGE), ASKER)
        await apps.delete("old-0", ASKER)
        await apps.create(NewApp(name="next", image=IMAGE), ASKER)


async def test_the_apps_of_one_key_leave_room_for_those_of_others(tmp_path: Path) -> None:
    async with running_beside(tmp_path, *names(share(MOST_APPS), "team")) as apps:
        with pytest.raises(TooManyApps, match="400 other apps of the key `other`, and may be 400"):
            await apps.create(NewApp(name="team-next", image=IMAGE), ASKER)
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)


@pytest.mark.parametrize(
    ("prefix", "most"), [("old", MOST_BYTES), ("team", share(MOST_BYTES))], ids=["all", "of a key"]
)
async def test_all_apps_together_are_only_so_large(tmp_path: Path, prefix: str, most: int) -> None:
    large = names(most // 25_300, prefix)
    small = f"{prefix}-small"
    async with running_beside(tmp_path, *large, env=LARGE) as apps:
        with pytest.raises(TooManyApps, match=f"and may take {most}; write less into `env`"):
            await apps.create(NewApp(name=small, image=IMAGE, env=LARGE), ASKER)
        await apps.create(NewApp(name=small, image=IMAGE), ASKER)
        with pytest.raises(TooManyApps, match=f"and may take {most}"):
            await apps.update(small, AppChanges(env=LARGE), ASKER)
        with pytest.raises(TooManyApps, match=f"and may take {most}"):
            await fill_with_labels(apps, small)
        await apps.update(small, AppChanges(env={"A": "b"}), ASKER)
        await apps.rebuild(small, ASKER)


async def fill_with_labels(apps: Apps, name: str) -> None:
    """Add large labels, as many as one app may have at most."""
    for number in range(60):
        await apps.add_label(name, f"k{number}:{'x' * 1000}", ASKER)
