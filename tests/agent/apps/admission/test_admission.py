"""What a host admits: images, promised memory, the number and the size of apps."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import LogCapture

from agent.apps.admission.admission import MOST_APPS, MOST_BYTES
from agent.apps.admission.fields import check_new_app
from agent.apps.errors import (
    AppExists,
    ImageNotAllowed,
    InvalidApp,
    MemoryPromised,
    PortInUse,
    TooManyApps,
)
from agent.engine.models import EngineInfo
from agent.model import App, AppChanges, HealthCheck, NewApp
from agent.state.database import AgentDatabase
from runtime.turns import share
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, FakeEngine, fake_image
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow
OURS, OTHERS = "registry.example.com/shop:1", "registry.example.com.evil.example/shop:1"
OUR_ID, OTHER_ID = "sha256:" + "1" * 64, "sha256:" + "2" * 64
ONLY_OURS = replace(AT_ONCE, allowed_images=("registry.example.com/",))
# The host of the fake engine has 4096 MiB.
ALL_OF_IT = replace(DEFAULTS, settle_seconds=0, min_free_percent=0, overcommit_percent=100)
LARGE = {"A": "x" * 25_000}


def engine_with_both() -> FakeEngine:
    engine = FakeEngine()
    engine.tag(OURS, replace(fake_image(OUR_ID), tags=frozenset({OURS})))
    engine.tag(OTHERS, replace(fake_image(OTHER_ID), tags=frozenset({OTHERS, "shop:1"})))
    engine.tag("shop:1", replace(fake_image(OTHER_ID), tags=frozenset({OTHERS, "shop:1"})))
    return engine


@pytest.mark.parametrize("image", [OTHERS, "shop:1", OTHER_ID, "sha256:" + "9" * 64])
async def test_a_create_or_an_update_with_another_image_is_rejected(
    tmp_path: Path, image: str
) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        before = await apps.create(NewApp(name="web", image=OURS), ASKER)
        with pytest.raises(ImageNotAllowed, match=r"`apps\.allowed_images` .* registry\.example"):
            await apps.create(NewApp(name="new", image=image), ASKER)
        with pytest.raises(ImageNotAllowed):
            await apps.update("web", AppChanges(image=image), ASKER)
        assert await apps.queries.one("web") == before
        assert [each.name for each in await apps.queries.all()] == ["web"]


async def test_an_image_that_is_given_by_its_id_is_known_by_its_names(tmp_path: Path) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        created = await apps.create(NewApp(name="web", image=OUR_ID), ASKER)
    assert created.image_id == OUR_ID


async def test_the_beginning_of_an_id_is_no_name_of_docker_hub(tmp_path: Path) -> None:
    engine, only_hub = engine_with_both(), replace(AT_ONCE, allowed_images=("docker.io/",))
    short = OUR_ID.removeprefix("sha256:")[:12]
    engine.tag(short, replace(fake_image(OUR_ID), tags=frozenset({OURS})))
    async with running_apps(tmp_path, engine, LogCapture(), defaults=only_hub) as apps:
        with pytest.raises(ImageNotAllowed):
            await apps.create(NewApp(name="web", image=short), ASKER)
        assert await apps.queries.all() == []
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        assert (await apps.create(NewApp(name="web", image=short), ASKER)).image_id == OUR_ID


@pytest.mark.parametrize("image", ["Evil/app", "evil/App:1", "a/Evil.example.com/app"])
def test_a_name_without_a_server_has_no_capital_letters(image: str) -> None:
    with pytest.raises(InvalidApp, match=r"write \[SERVER/\]NAME"):
        check_new_app(NewApp(name="web", image=image))


@pytest.mark.parametrize(
    "image", ["Evil:5000/app", "EVIL.example.com/app:Tag", "localhost/app", "shop/web:1", "nginx"]
)
def test_a_server_has_a_dot_or_a_port_or_is_localhost(image: str) -> None:
    check_new_app(NewApp(name="web", image=image))


async def rebuilt(apps: AskedApps) -> None:
    await apps.rebuild("web", ASKER)


async def rolled_back(apps: AskedApps) -> None:
    await apps.rollback("web", 1, ASKER)


@pytest.mark.parametrize("change", [rebuilt, rolled_back])
async def test_an_app_from_before_goes_on_and_is_not_rebuilt_or_rolled_back(
    tmp_path: Path, change: Callable[[AskedApps], Awaitable[None]]
) -> None:
    engine = engine_with_both()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image="shop:1"), ASKER)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=ONLY_OURS) as apps:
        changed = await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        assert (changed.env, changed.state) == ({"A": "1"}, "running")
        with pytest.raises(ImageNotAllowed):
            await change(apps)
        assert (await apps.queries.one("web")).env == {"A": "1"}


def with_teams_key(name: str) -> str:
    """Return the key for some apps that an app belongs to."""
    return "team" if name.startswith("team-") else ""


async def create_with(apps: AskedApps, name: str, memory: int) -> None:
    await apps.create(NewApp(name=name, image=IMAGE, memory=memory), ASKER)


async def test_no_app_is_promised_more_than_there_is(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        await create_with(apps, "first", 3000)
        with pytest.raises(MemoryPromised, match="3000 MiB are promised to other apps, and 1097"):
            await create_with(apps, "second", 1097)
        assert [app.name for app in await apps.queries.all()] == ["first"]

        await create_with(apps, "second", 1096)
        with pytest.raises(MemoryPromised, match="over 4096 MiB, 100 % of the host's 4096"):
            await apps.update("second", AppChanges(memory=1097), ASKER)
        assert (await apps.queries.one("second")).memory == 1096

        await apps.delete("first", ASKER)
        await apps.update("second", AppChanges(memory=4096), ASKER)


async def test_two_at_once_do_not_get_the_same_memory(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        ended = await asyncio.gather(
            *[create_with(apps, f"app-{number}", 2000) for number in range(4)],
            return_exceptions=True,
        )

        assert sum(isinstance(error, MemoryPromised) for error in ended) == 2
        assert len(await apps.queries.all()) == 2


async def test_two_at_once_do_not_get_the_same_port(tmp_path: Path) -> None:
    names = ("one", "two")
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        creates = [
            apps.create(NewApp(name=each, image=IMAGE, http_port=21000), ASKER) for each in names
        ]
        created = await asyncio.gather(*creates, return_exceptions=True)
        for each in names:
            with suppress(AppExists):
                await apps.create(NewApp(name=each, image=IMAGE), ASKER)
        updates = [apps.update(each, AppChanges(http_port=21001), ASKER) for each in names]
        updated = await asyncio.gather(*updates, return_exceptions=True)

    for ended in (created, updated):
        (rejected,) = [each for each in ended if isinstance(each, BaseException)]
        assert isinstance(rejected, PortInUse)
        assert re.search("port 2100[01] is held by app `(one|two)`", str(rejected))


async def test_what_was_promised_before_the_bound_goes_on(tmp_path: Path) -> None:
    engine, unbounded = FakeEngine(), replace(ALL_OF_IT, overcommit_percent=0)
    async with running_apps(tmp_path, engine, LogCapture(), defaults=unbounded) as apps:
        for number in range(3):
            await create_with(apps, f"app-{number}", 2000)

    async with running_apps(tmp_path, engine, LogCapture(), defaults=ALL_OF_IT) as apps:
        await apps.stop("app-0", ASKER)
        await apps.start("app-0", ASKER)
        await apps.rebuild("app-0", ASKER)
        await apps.update("app-0", AppChanges(env={"A": "b"}, memory=2000), ASKER)
        await apps.update("app-0", AppChanges(memory=1999), ASKER)
        with pytest.raises(MemoryPromised):
            await apps.update("app-0", AppChanges(memory=2000), ASKER)


async def test_an_app_whose_creation_failed_is_promised_memory_once_it_is_started(
    tmp_path: Path,
) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT) as apps:
        wanted = NewApp(name="failed", image=BROKEN_IMAGE, memory=4096)
        await apps.create(wanted, replace(ASKER, respond_async=True))

        async def failed() -> bool:
            return (await apps.queries.one("failed")).state == "failed"

        await async_until(failed)
        await create_with(apps, "second", 4000)
        await apps.update("failed", AppChanges(image=IMAGE), ASKER)
        with pytest.raises(MemoryPromised, match="4000 MiB are promised"):
            await apps.start("failed", ASKER)
        await apps.update("failed", AppChanges(memory=96), ASKER)
        await apps.start("failed", ASKER)
        with pytest.raises(MemoryPromised, match="4096 MiB are promised"):
            await create_with(apps, "third", 6)


async def test_one_key_leaves_memory_for_the_apps_of_others(tmp_path: Path) -> None:
    async with running_apps(
        tmp_path, FakeEngine(), LogCapture(), defaults=ALL_OF_IT, holders=with_teams_key
    ) as apps:
        await create_with(apps, "team-a", 3000)
        reason = "3000 MiB are promised to other apps of the key `team`, .* over 3276 MiB, four"
        with pytest.raises(MemoryPromised, match=reason):
            await create_with(apps, "team-b", 277)
        await create_with(apps, "team-b", 276)
        await create_with(apps, "web", 820)


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


def with_teams_keys(name: str) -> str:
    """Return the keys for some apps that an app belongs to: those of a team."""
    return "other,team" if name.startswith("team-") else ""


@asynccontextmanager
async def running_beside(
    folder: Path, *names: str, env: dict[str, str] | None = None
) -> AsyncIterator[AskedApps]:
    """Run apps beside failed ones of these names."""
    store = AgentDatabase(folder / "agent.db")
    await store.open()
    await store.adopt([failed_app(name, env or {}) for name in names])
    await store.close()
    async with running_apps(
        folder, FakeEngine(), LogCapture(), defaults=AT_ONCE, holders=with_teams_keys
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


async def fill_with_labels(apps: AskedApps, name: str) -> None:
    """Add large labels, as many as one app may have at most."""
    for number in range(60):
        await apps.add_label(name, f"k{number}:{'x' * 1000}", ASKER)


class ShrinkingEngine(FakeEngine):
    """An engine whose host may have one core and 1024 MiB."""

    is_small = False

    async def info(self) -> EngineInfo:
        host = await super().info()
        return replace(host, cpus=1, memory=1024) if self.is_small else host


async def test_only_limits_that_are_changed_must_fit(tmp_path: Path) -> None:
    engine = ShrinkingEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NewApp(name="web", image=IMAGE, cpu=400, memory=4096), ASKER)
        engine.is_small = True

        accepted: list[dict[str, Any]] = [
            {"description": "the shop"},
            {"health": HealthCheck(command=("true",))},
            {"env": {"A": "b"}},
        ]
        for fields in accepted:
            await apps.update("web", AppChanges(**fields), ASKER)
        for larger in (AppChanges(memory=2048), AppChanges(cpu=200)):
            with pytest.raises(InvalidApp, match="are possible here"):
                await apps.update("web", larger, ASKER)
        smaller = await apps.update("web", AppChanges(memory=512), ASKER)

        assert (smaller.cpu, smaller.memory) == (400, 512)
        assert (smaller.description, smaller.env) == ("the shop", {"A": "b"})
