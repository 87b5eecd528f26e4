"""Which changes of an app are revisions, and what is kept of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.apps.errors import AppNotFound, NoRevisionBefore, StartFailed
from agent.model import FIELD_KINDS, AppChanges, HealthCheck, NewApp, spec_values
from agent.state.history import MOST_REVISIONS, Revision
from tests.support.agent.apps.revisions import NEWER, OTHER_ASKER, apps_of, create, numbers
from tests.support.agent.engines.fake_engine import (
    BROKEN_IMAGE,
    IMAGE,
    IMAGE_IDS,
    OTHER_IMAGE,
    FakeEngine,
)
from tests.support.agent.running_apps import ASKER
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow


async def test_each_change_of_fields_or_image_is_a_revision_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        await apps.update("web", AppChanges(cpu=70), OTHER_ASKER)
        await apps.update("web", AppChanges(description="Shop", pull="never"), ASKER)
        await apps.update("web", AppChanges(env={"A": "1"}), ASKER)
        await apps.update("web", AppChanges(env={"A": "1"}, cpu=70), ASKER)
        await apps.stop("web", ASKER)
        await apps.start("web", ASKER)
        await apps.add_label("web", "tier:web", ASKER)
        await apps.set_password("web", "a good password", ASKER)
        await apps.rebuild("web", ASKER)
        with pytest.raises(StartFailed):
            await apps.update("web", AppChanges(image=BROKEN_IMAGE), ASKER)
        engine.tag(IMAGE, NEWER)
        await apps.update("web", AppChanges(pull="always"), ASKER)
        await apps.rebuild("web", ASKER)
        history = await apps.history("web")
        record = await apps.queries.one("web")

    assert [(each.revision, each.by, each.operation, each.changed) for each in history] == [
        (6, "operator", "rebuild", ("image_id",)),
        (5, "operator", "update", ("pull",)),
        (4, "operator", "update", ("env",)),
        (3, "operator", "update", ("description", "pull")),
        (2, "deploy", "update", ("cpu",)),
        (1, "operator", "create", ()),
    ]
    assert [each.image_id for each in history] == [NEWER.id, *[IMAGE_IDS[IMAGE]] * 5]
    assert record.revision == 6
    assert spec_values(record) == spec_values(history[0])
    assert [each.created_at for each in history] == sorted(
        (each.created_at for each in history), reverse=True
    )


async def test_the_last_ten_are_kept_also_after_a_restart(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps)
        for cpu in range(60, 71):
            await apps.update("web", AppChanges(cpu=cpu), ASKER)
        kept = await apps.history("web")
    async with apps_of(tmp_path, engine) as apps:
        again = await apps.history("web")
        await apps.update("web", AppChanges(cpu=90), ASKER)
        more = await numbers(apps)

    assert [each.revision for each in kept] == list(range(12, 2, -1))
    assert len(kept) == MOST_REVISIONS
    assert again == kept
    assert more == list(range(13, 3, -1))


async def test_an_app_that_goes_takes_its_history_with_it_also_when_its_data_is_kept(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with apps_of(tmp_path, engine) as apps:
        await create(apps, env={"TOKEN": "s3cret"})
        await apps.update("web", AppChanges(cpu=70), ASKER)
        await apps.delete("web", ASKER, keep_data=True)
        with pytest.raises(AppNotFound):
            await apps.history("web")
        await create(apps)
        history = await apps.history("web")

    assert [(each.revision, each.env) for each in history] == [(1, {})]


async def test_a_creation_that_failed_has_no_history_until_the_app_starts(tmp_path: Path) -> None:
    async with apps_of(tmp_path, FakeEngine()) as apps:
        body = NewApp(name="web", image=BROKEN_IMAGE)
        await apps.create(body, replace(ASKER, respond_async=True))

        async def failed() -> bool:
            return (await apps.queries.one("web")).state == "failed"

        await async_until(failed)
        assert ((await apps.queries.one("web")).revision, await apps.history("web")) == (None, [])
        await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
        assert await apps.history("web") == []
        with pytest.raises(NoRevisionBefore, match="history"):
            await apps.rollback("web", None, ASKER)
        started = await apps.start("web", ASKER)

        (first,) = await apps.history("web")
        assert (first.revision, first.operation, first.image) == (1, "start", OTHER_IMAGE)
        assert started.revision == 1


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
FIELDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "env": st.dictionaries(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True), TEXT
        ),
        "description": TEXT,
        "command": st.lists(TEXT, max_size=3).map(tuple),
        "cpu": st.integers(1, 400),
        "data": st.sampled_from([(), ("/srv",), ("/a b", "/ü")]),
        "health": st.none() | st.builds(HealthCheck, command=st.tuples(TEXT.filter(bool))),
        "stop_seconds": st.none() | st.integers(0, 3600),
    },
)


@given(changes=st.lists(FIELDS, min_size=1, max_size=6), choice=st.integers(0, 6))
@settings(max_examples=25)
async def test_whatever_its_text_a_revision_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, Any]], choice: int
) -> None:
    seen = list[Any]()
    async with apps_of(tmp_path_factory.mktemp("text"), FakeEngine()) as apps:
        await create(apps)
        seen.append(spec_values(await apps.queries.one("web")))
        for fields in changes:
            now = spec_values(await apps.update("web", AppChanges(**fields), ASKER))
            if now != seen[-1]:
                seen.append(now)
        history: list[Revision] = (await apps.history("web"))[::-1]
        chosen = seen[choice % len(seen)]
        back = await apps.rollback("web", 1 + choice % len(seen), ASKER)

    assert [spec_values(each) for each in history] == seen
    assert {name: getattr(back, name) for name in FIELD_KINDS} == chosen
