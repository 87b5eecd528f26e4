"""When an image is pulled, and what is used where its pull fails."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from structlog.testing import LogCapture

from agent.engine.errors import (
    EngineError,
    ImageNotFound,
    ImageServerUnavailable,
    ImageUnavailable,
)
from agent.engine.models import Image, PullProgress
from agent.model import AppChanges, NewApp
from tests.support.agent.engines.fake_engine import IMAGE, OTHER_IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps

NOT_FOUND = ImageNotFound("manifest unknown")
DOWN = ImageServerUnavailable("dial tcp: connection refused")
UNREADABLE = ImageUnavailable("unauthorized: authentication required")


class PullCounter(FakeEngine):
    """An engine whose images came from a server; it counts pulls, which may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.pulls: list[str] = []
        self.here = {IMAGE, OTHER_IMAGE}
        self.may_be_local = False
        self.error: EngineError | None = None

    async def image(self, reference: str) -> Image | None:
        known = await super().image(reference) if reference in self.here else None
        return known and replace(known, local=False, may_be_local=self.may_be_local)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del progress
        self.pulls.append(reference)
        if self.error is not None:
            raise self.error
        self.here.add(reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "pulls"),
    [
        ("always", {"create": [IMAGE], "update": [OTHER_IMAGE], "rebuild": [OTHER_IMAGE]}),
        ("missing", {"create": [], "update": [], "rebuild": [OTHER_IMAGE]}),
        ("never", {"create": [], "update": [], "rebuild": []}),
    ],
)
async def test_an_image_that_is_here_is_pulled_as_the_policy_says(
    tmp_path: Path, policy: Literal["always", "missing", "never"], pulls: dict[str, list[str]]
) -> None:
    engine, seen = PullCounter(), {}
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        for operation in pulls:
            engine.pulls.clear()
            if operation == "create":
                await apps.create(NewApp(name="web", image=IMAGE, pull=policy), ASKER)
            elif operation == "update":
                await apps.update("web", AppChanges(image=OTHER_IMAGE), ASKER)
            else:
                await apps.rebuild("web", ASKER)
            seen[operation] = list(engine.pulls)

    assert seen == pulls


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "pulls"), [("missing", [IMAGE]), ("never", [])])
async def test_an_image_that_is_not_here_is_pulled_unless_never(
    tmp_path: Path, policy: Literal["missing", "never"], pulls: list[str]
) -> None:
    engine = PullCounter()
    engine.here.clear()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        new = NewApp(name="web", image=IMAGE, pull=policy)
        if policy == "missing":
            assert (await apps.create(new, ASKER)).state == "running"
        else:
            with pytest.raises(ImageUnavailable, match="not on this host"):
                await apps.create(new, ASKER)
            assert await apps.queries.all() == []

    assert engine.pulls == pulls


@pytest.mark.slow
async def test_another_policy_pulls_nothing_and_is_written_on_a_new_container(
    tmp_path: Path,
) -> None:
    engine = PullCounter()
    async with running_apps(tmp_path, engine, LogCapture(), defaults=AT_ONCE) as apps:
        before = await apps.create(NewApp(name="web", image=IMAGE), ASKER)

        changed = await apps.update("web", AppChanges(pull="never"), ASKER)

        pulls = len(engine.pulls)
        again = await apps.update("web", AppChanges(pull="never"), ASKER)

    assert (before.pull, changed.pull, changed.image_id) == ("always", "never", before.image_id)
    assert (pulls, len(engine.pulls)) == (1, 1)
    assert changed.container_id not in (None, before.container_id)
    assert again.container_id == changed.container_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "may_be_local", "used"),
    [
        (NOT_FOUND, False, True),
        (NOT_FOUND, True, True),
        (DOWN, False, False),
        (DOWN, True, True),
        (UNREADABLE, True, False),
    ],
)
async def test_a_rebuild_uses_an_image_that_is_here_only_if_no_server_may_know_it(
    tmp_path: Path, error: EngineError, *, may_be_local: bool, used: bool
) -> None:
    engine, log = PullCounter(), LogCapture()
    async with running_apps(tmp_path, engine, log, defaults=AT_ONCE) as apps:
        before = await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        engine.error, engine.may_be_local = error, may_be_local

        if used:
            rebuilt = await apps.rebuild("web", ASKER)
            assert rebuilt.container_id != before.container_id
            reported = [
                each for each in log.entries if each["event"].startswith("image not pulled")
            ]
            assert [each["reason"] for each in reported] == [str(error)]
        else:
            with pytest.raises(type(error), match="`pull: never` uses the one on this host"):
                await apps.rebuild("web", ASKER)
            kept = await apps.queries.one("web")
            assert (kept.container_id, kept.state) == (before.container_id, "running")
