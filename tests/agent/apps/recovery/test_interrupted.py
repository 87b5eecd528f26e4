"""Operations that broke off in an agent of the version before come to the end it gave them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import LogCapture

from agent.model import App, spec_values
from agent.state.store import Store
from tests.support.agent.engines.fake_engine import FakeEngine
from tests.support.agent.engines.fake_state import FakeEngineState
from tests.support.agent.in_process import DEFAULTS
from tests.support.agent.recorded.interrupted import OPERATIONS, Interruption, interruptions
from tests.support.agent.running_apps import running_apps
from tests.support.waiting import async_until

# That version left a volume that it had just made, if it had not made the container yet.
LEFT_A_VOLUME = {
    ("start_an_app_that_has_lost_container_and_volume", "after create volume"),
    ("start_an_app_that_has_lost_container_and_volume", "before create"),
}
# Later versions say what can be done, too.
HINT = "; change its `image` or `command`"
NO_WAIT = replace(DEFAULTS, settle_seconds=0, min_free_percent=0)


def without_later_labels(state: FakeEngineState) -> Any:
    """Return what an engine has, without the labels that got more content since that version.

    These are the label of a container that holds an app, and all but one of a volume. Later
    versions write another identity on what they make, which test_ownership.py tests.
    """
    content: Any = msgspec.to_builtins(state)
    for container in content["containers"].values():
        del container["labels"]["rollcall.spec"], container["labels"]["rollcall.agent"]
        # What the engine in these files did not keep.
        for later in ("stopped_at", "health", "bind", "autostart"):
            del container[later]
    for name, labels in content["volumes"].items():
        content["volumes"][name] = {"rollcall.app": labels["rollcall.app"]}
    return content


def without_later_fields(apps: list[App]) -> list[App]:
    """Return apps without what that version did not write."""
    return [
        msgspec.structs.replace(
            app,
            volumes={},
            image_id=None,
            revision=None,
            message=app.message and app.message.removesuffix(HINT),
        )
        for app in apps
    ]


async def check_history(store: Store, app: App, interruption: Interruption) -> None:
    """Assert that the app has a revision of before, and one more if the operation changed it."""
    before = [each for each in interruption.apps if each["name"] == app.name and not each["failed"]]
    revisions = await store.revisions(app.name)
    fields = [spec_values(each) for each in reversed(revisions)]
    assert [each.revision for each in reversed(revisions)] == list(range(1, len(revisions) + 1))
    if not app.failed:
        assert fields[-1] == spec_values(app)
    was = [spec_values(msgspec.convert(each, App)) for each in before]
    is_new = [] if app.failed or spec_values(app) in was else [spec_values(app)]
    assert fields == was + is_new


async def recover(interruption: Interruption, folder: Path) -> tuple[Any, Any]:
    """Return what there is once an agent has recovered, and what there should be."""
    interruption.write_database(folder / "agent.db")
    engine = FakeEngine(msgspec.convert(msgspec.to_builtins(interruption.engine), FakeEngineState))
    async with running_apps(folder, engine, LogCapture(), defaults=NO_WAIT) as apps:

        async def idle() -> bool:
            return all(each.progress is None for each in await apps.all())

        await async_until(idle)
    store = Store(folder / "agent.db")
    stored = await store.open()
    assert stored.entries == []
    for app in stored.apps:
        await check_history(store, app, interruption)
    end = interruption.end
    # An operation that made no container may count as undone, too.
    assert set(stored.undone) >= set(end.undone)
    found = without_later_fields(stored.apps), without_later_labels(engine.state)
    return found, (end.apps, without_later_labels(end.engine))


@pytest.mark.slow
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
