"""Count the frames and the calls of the program's own functions in five flows.

The daemons run in this process, with stores and an engine in memory. Only functions of the
program count, and only those that run in the event loop's thread.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
import structlog
from structlog.testing import LogCapture

from agent.model import NewApp
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.in_process import OPERATOR, served
from tests.support.agent.running_apps import ASKER, AT_ONCE, running_apps
from tests.support.registry.in_process import InProcessRegistry, in_process_registry

TOP = Path(__file__).parents[1]
NOT_COUNTED = ("tests", "dev", "bench", ".venv")
TRIES = 5


@cache
def own_file(file: str) -> str | None:
    """Return the path of a file of the program, from the top of the repository; else None."""
    path = Path(file)
    if not path.is_relative_to(TOP):
        return None
    relative = path.relative_to(TOP)
    return None if relative.parts[0] in NOT_COUNTED else str(relative)


class Calls:
    """The calls of the program's functions, each by its frame; a resumed coroutine counts once."""

    def __init__(self) -> None:
        self.frames = dict[int, FrameType]()
        self.deepest = 0  # how many frames of the program were on top of one another

    @property
    def files(self) -> set[str]:
        """The files of these functions."""
        return {frame.f_code.co_filename for frame in self.frames.values()}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the calls in this thread."""
        sys.setprofile(self._record)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and own_file(frame.f_code.co_filename) is not None:
            self.frames[id(frame)] = frame
            self.deepest = max(self.deepest, own_frames(frame))


class Depths:
    """The program's frames above a call, with those above the start of its task."""

    def __init__(self) -> None:
        self._before = WeakKeyDictionary[asyncio.Task[Any], int]()

    def make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task, whose frames count on top of those that start it."""
        task = asyncio.Task(coroutine, loop=loop, **options)
        self._before[task] = self.now()
        return task

    def now(self) -> int:
        """Return how many frames of the program are above this call."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        before = 0 if task is None else self._before.get(task, 0)
        return before + own_frames(inspect.currentframe())


class DeepEngine(FakeEngine):
    """An engine in memory that records how deep some of its calls are."""

    def __init__(self, depths: Depths) -> None:
        super().__init__()
        self.deepest = dict[str, int]()
        self._depths = depths

    def __getattribute__(self, name: str) -> Any:
        if name in ("create", "containers"):
            deepest = object.__getattribute__(self, "deepest")
            now = object.__getattribute__(self, "_depths").now()
            deepest[name] = max(now, deepest.get(name, 0))
        return object.__getattribute__(self, name)


def own_frames(frame: FrameType | None) -> int:
    """Return how many frames of the program there are, from this one outwards."""
    count = 0
    while frame is not None:
        count += own_file(frame.f_code.co_filename) is not None
        frame = frame.f_back
    return count


async def flows() -> dict[str, int]:
    """Return the figures of the five flows by their names."""
    with TemporaryDirectory() as folder:
        found = await _agent_frames(Path(folder))
    async with in_process_registry(level="error") as registry:
        return found | await _registry_calls(registry)


async def _agent_frames(folder: Path) -> dict[str, int]:
    depths = Depths()
    engine, log, metrics = DeepEngine(depths), LogCapture(), new_metrics()
    logger = structlog.wrap_logger(None, processors=[log])
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with (
        running_apps(folder, engine, log, defaults=AT_ONCE) as apps,
        served(apps, metrics, logger) as url,
        aiohttp.ClientSession(url, headers=headers) as session,
    ):
        await apps.create(NewApp(name="web", image=IMAGE), ASKER)
        asyncio.get_running_loop().set_task_factory(depths.make_task)
        engine.deepest.clear()
        async with session.put("/v1/apps/web/rebuild") as answer:
            assert answer.status == HTTPStatus.OK, await answer.text()
        rebuild = engine.deepest["create"]
        engine.deepest.clear()
        async with session.get("/v1/apps") as answer:
            assert answer.status == HTTPStatus.OK
        return {
            "frames of a rebuild": rebuild,
            "frames of GET /v1/apps": engine.deepest["containers"],
        }


async def _registry_calls(registry: InProcessRegistry) -> dict[str, int]:
    labels = ["prometheus:shop", "rack:r1"]

    async def unchanged() -> None:
        await registry.post("web-1", labels)

    async def changed() -> None:
        labels[1] = f"rack:r{int(labels[1][6:]) + 1}"
        await registry.post("web-1", labels)

    async def targets() -> None:
        await registry.get("/prometheus/shop")

    async def changed_targets() -> None:
        with uncounted():
            await changed()
        await registry.get("/prometheus/shop")

    same, other = await fewest(unchanged), await fewest(changed)
    kept, made = await fewest(targets), await fewest(changed_targets)
    return {
        "calls of an unchanged heartbeat": len(same.frames),
        "files of an unchanged heartbeat": len(same.files),
        "calls of a changed heartbeat": len(other.frames),
        "files of a changed heartbeat": len(other.files),
        "frames of kept targets": kept.deepest,
        "frames of made targets": made.deepest,
    }


@contextmanager
def uncounted() -> Iterator[None]:
    """Count no calls meanwhile."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)


async def fewest(send: Callable[[], Awaitable[None]]) -> Calls:
    """Return the calls of a flow; the fewest of some, since periodic tasks run beside it."""
    await send()
    found = list[Calls]()
    for _ in range(TRIES):
        calls = Calls()
        with calls.counted():
            await send()
        found.append(calls)
    return min(found, key=lambda calls: len(calls.frames))
