"""Operations that broke off in an agent of the version before come to the end it gave them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.model import App
from agent.state.store import Store
from tests.support.agent.engines.fake_engine import FakeEngine, FakeEngineState
from tests.support.agent.in_process import DEFAULTS, async_until
from tests.support.agent.interrupted import OPERATIONS, Interruption, interruptions
from tests.support.agent.running_apps import running_apps

# That version left a volume that it had just made, if it had not made the container yet.
LEFT_A_VOLUME = {
    ("start_an_app_that_has_lost_container_and_volume", "after create volume"),
    ("start_an_app_that_has_lost_container_and_volume", "before create"),
}
NO_WAIT = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)


def without_later_labels(state: FakeEngineState) -> Any:
    """Return what an engine has, without the labels that got more content since that version.

    These are the label of a container that holds an app, and all but one of a volume.
    """
    content: Any = msgspec.to_builtins(state)
    for container in content["containers"].values():
        del container["labels"]["rollcall.spec"]
    for name, labels in content["volumes"].items():
        content["volumes"][name] = {"rollcall.app": labels["rollcall.app"]}
    return content


def without_later_fields(apps: list[App]) -> list[App]:
    """Return apps without what that version did not write."""
    return [msgspec.structs.replace(app, volumes={}, image_id=None) for app in apps]


async def recover(interruption: Interruption, folder: Path) -> tuple[Any, Any]:
    """Return what there is once an agent has recovered, and what there should be."""
    interruption.write_database(folder / "agent.db")
    engine = FakeEngine(msgspec.convert(msgspec.to_builtins(interruption.engine), FakeEngineState))
    async with running_apps(folder, engine, LogCapture(), defaults=NO_WAIT) as apps:

        async def idle() -> bool:
            return all(each.progress is None for each in await apps.all())

        await async_until(idle)
    stored = await Store(folder / "agent.db").open()
    assert stored.entries == []
    end = interruption.end
    # An operation that made no container may count as undone, too.
    assert set(stored.undone) >= set(end.undone)
    found = without_later_fields(stored.apps), without_later_labels(engine.state)
    return found, (end.apps, without_later_labels(end.engine))


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_broke_off_at_any_step_is_finished_or_undone_as_ever(
    tmp_path: Path, operation: str
) -> None:
    steps = interruptions(operation)

    ends = await asyncio.gather(
        *(recover(step, tmp_path / str(number)) for number, step in enumerate(steps))
    )

    for step, ((apps, engine), (expected_apps, expected_engine)) in zip(steps, ends, strict=True):
        if (operation, step.step) in LEFT_A_VOLUME:
            expected_engine["volumes"] = {}
        assert (apps, engine) == (expected_apps, expected_engine), step.step
