"""The label that holds an app is bounded: the engine repeats it in each list and event."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.apps.containers.spec import MAX_IMAGE_CONFIG_BYTES
from agent.apps.errors import InvalidApp, UnfitImage
from agent.apps.labels import MAX_SPEC_BYTES, engine_bytes
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine, fake_image
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

NEW = NewApp(name="web", image=IMAGE)


@pytest.mark.parametrize(
    ("text", "size"),
    [("plain", 5), ("<>&", 18), ('"\\', 4), ("\n", 2), ("\x01", 6), ("€", 3), ("\u2028", 6)],
)
def test_a_text_counts_as_many_bytes_as_the_json_of_the_engine_has(text: str, size: int) -> None:
    assert engine_bytes([text, text]) == 2 * size


async def test_labels_are_bounded_by_the_bytes_that_the_engine_repeats(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        await apps.create(NEW, ASKER)
        for number in range(10):
            await apps.add_label("web", f"k{number}:{'<' * 1000}", ASKER)
        with pytest.raises(InvalidApp, match=f"may take {MAX_SPEC_BYTES}"):
            await apps.add_label("web", f"k10:{'<' * 1000}", ASKER)
        record = await apps.queries.one("web")
        assert len(record.labels) == 10

        with pytest.raises(InvalidApp, match=f"may take {MAX_SPEC_BYTES}"):
            await apps.update("web", AppChanges(command=("\x01" * 8192,)), ASKER)
        assert await apps.queries.one("web") == record

        await apps.remove_label("web", record.labels[0], ASKER)
        await apps.rebuild("web", ASKER)


async def test_an_app_that_is_created_is_bounded_too(tmp_path: Path) -> None:
    async with running_apps(tmp_path, FakeEngine(), LogCapture(), defaults=AT_ONCE) as apps:
        large = msgspec.structs.replace(
            NEW,
            command=("\x01" * 8192,),
            description="<" * 1024,
            data=("/" + "<" * 255, "/" + ">" * 255),
        )
        with pytest.raises(InvalidApp, match=f"may take {MAX_SPEC_BYTES}"):
            await apps.create(large, ASKER)
        assert await apps.queries.all() == []


async def test_an_image_exposes_no_more_ports_than_the_engine_lists_fast(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        engine.tag(IMAGE, replace(fake_image("i9"), exposes=1025))
        with pytest.raises(UnfitImage, match="exposes 1025 ports, and may expose 1024"):
            await apps.create(NEW, ASKER)
        assert await apps.queries.all() == []
        assert (engine.state.containers, engine.state.volumes) == ({}, {})
        engine.tag(IMAGE, replace(fake_image("i9"), exposes=1024))
        await apps.create(NEW, ASKER)


async def test_the_configuration_of_an_image_is_bounded(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        engine.tag(IMAGE, replace(fake_image("i9"), config_bytes=MAX_IMAGE_CONFIG_BYTES + 1))
        with pytest.raises(UnfitImage, match="takes 65537 bytes"):
            await apps.create(NEW, ASKER)
        engine.tag(IMAGE, replace(fake_image("i9"), config_bytes=MAX_IMAGE_CONFIG_BYTES))
        await apps.create(NEW, ASKER)
        await apps.stop("web", ASKER)
        engine.tag(IMAGE, replace(fake_image("i10"), config_bytes=MAX_IMAGE_CONFIG_BYTES + 1))
        with pytest.raises(UnfitImage, match="build it with less"):
            await apps.rebuild("web", ASKER)
