"""One list of fields: what a change of each takes, and that each goes wherever an app goes."""

from pathlib import Path

import pytest
from structlog.testing import LogCapture

from agent.apps.labels import LABELLED_FIELDS, SPEC_LABEL
from agent.model import FIELD_KINDS, AppChanges, AppSpec, FieldKind, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

TEXT = "Shop front:\n“tea & coffee”"
PROBE = {f"{call} of a probe" for call in ("create", "start", "remove")}
REPLACEMENT = {"create", "stop", "start", "remove", "rename", *PROBE}
NEW = NewApp(name="web", image=IMAGE, env={"TOKEN": "s3cret"}, description=TEXT)


class ObservedEngine(FakeEngine):
    """An engine that notes the calls which change something."""

    def __init__(self) -> None:
        super().__init__(at_step=self._note)
        self.steps: list[str] = []

    async def _note(self, step: str) -> None:
        self.steps.append(step)


@pytest.mark.slow
async def test_a_description_is_in_the_list_and_in_the_record(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NEW, ASKER)
        listed = await apps.queries.all()

        assert created.description == (await apps.queries.one("web")).description == TEXT
        assert [each.description for each in listed] == [TEXT]


@pytest.mark.slow
async def test_a_description_changes_without_a_word_to_the_engine_and_survives_a_rebuild(
    tmp_path: Path,
) -> None:
    engine = ObservedEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NEW, ASKER)
        engine.steps.clear()

        updated = await apps.update("web", AppChanges(description="tea"), ASKER)

        assert engine.steps == []
        assert (updated.description, updated.container_id) == ("tea", created.container_id)
        rebuilt = await apps.rebuild("web", ASKER)
        assert rebuilt.description == "tea"
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        assert (await apps.queries.one("web")).description == "tea"


@pytest.mark.slow
async def test_a_lost_description_comes_back_as_it_was_when_the_container_was_made(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path / "lost", engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NEW, ASKER)
        await apps.update("web", AppChanges(description="later"), ASKER)

    async with running_apps(
        tmp_path / "new", engine, LogCapture(), adopt=True, defaults=AT_ONCE
    ) as apps:
        assert await apps.queries.one("web") == created


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        (AppChanges(cpu=70, description="tea"), {"limit"}),
        (AppChanges(env={}), REPLACEMENT),
        (AppChanges(image=OTHER_IMAGE, cpu=70), REPLACEMENT),
        (AppChanges(image=IMAGE, description=TEXT), set()),
    ],
)
async def test_a_change_takes_what_the_kinds_of_its_fields_ask_for(
    tmp_path: Path, changes: AppChanges, calls: set[str]
) -> None:
    engine = ObservedEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NEW, ASKER)
        engine.steps.clear()

        await apps.update("web", changes, ASKER)

    assert {step.partition(" ")[2] for step in engine.steps} == calls


@pytest.mark.slow
async def test_a_label_of_before_the_latest_fields_is_read_with_their_defaults(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path / "lost", engine, LogCapture(), defaults=AT_ONCE) as apps:
        created = await apps.create(NEW, ASKER)
    (container,) = engine.state.containers.values()
    container.labels[SPEC_LABEL] = (
        f'{{"image":"{IMAGE}","ssh_port":{created.ssh_port},"http_port":{created.http_port},'
        '"created_at":"2026-01-31T12:00:00Z","labels":["service:web"],"env":["TOKEN"]}'
    )

    async with running_apps(
        tmp_path / "new", engine, LogCapture(), adopt=True, defaults=AT_ONCE
    ) as apps:
        adopted = await apps.queries.one("web")

    assert (adopted.env, adopted.labels) == ({"TOKEN": "s3cret"}, ("service:web",))
    assert (adopted.http_port, adopted.created_at) == (created.http_port, "2026-01-31T12:00:00Z")
    assert adopted.description == ""


@pytest.mark.slow
async def test_the_label_of_a_container_holds_neither_secrets_nor_what_changes_in_it(
    tmp_path: Path,
) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NEW, ASKER)

    (container,) = engine.state.containers.values()
    assert "s3cret" not in container.labels[SPEC_LABEL]
    live = {field for field, kind in FIELD_KINDS.items() if kind is FieldKind.LIVE}
    assert live.isdisjoint(LABELLED_FIELDS)
    assert (
        set(FIELD_KINDS)
        == set(AppSpec.__struct_fields__)
        == live | {"name"} | (set(LABELLED_FIELDS) - {"created_at", "labels", "volumes"})
    )
