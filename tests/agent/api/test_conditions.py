"""What each operation on apps answers where it cannot do its work, and in the background."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import yaml
from aiohttp import ClientSession
from structlog.testing import LogCapture

from agent.engine.errors import DiskFull, ImageServerBusy, ImageServerUnavailable
from agent.engine.models import PullProgress
from agent.model import AppChanges, NewApp
from httpd.metrics import new_metrics
from tests.support.agent.engines.fake_engine import (
    IMAGE,
    IMAGE_IDS,
    OTHER_IMAGE,
    FakeEngine,
    fake_image,
)
from tests.support.agent.in_process import OPERATOR, in_process_agent, served
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.machine.disks import fill_disk, memory_disk
from tests.support.requirements import need_root

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[3] / "agent" / "swagger.yml"
# Each worker reads it when it collects the tests: libyaml takes a tenth of the time.
PATHS = yaml.load(DOCUMENT.read_text(), yaml.CSafeLoader)["paths"]
NO_ENGINE = "unix:///nonexistent/docker.sock"
APP = "/v1/apps/{app_name}"
LABEL = "tier:web"
BODIES = {
    ("POST", "/v1/apps"): b'{"name": "shop", "image": "app:1"}',
    ("PUT", APP): b'{"image": "app:3"}',
    ("POST", f"{APP}/labels"): b'{"Value": "site:north"}',
    ("DELETE", f"{APP}/labels"): b'{"Value": "tier:web"}',
    ("PUT", f"{APP}/keys"): b"a good password",
}
# They read the agent's own database.
WITHOUT_ENGINE = {("GET", f"{APP}/history"), ("GET", f"{APP}/events")}
# They are 409 for an app that does not run.
BESIDE_A_CHANGE = {("GET", f"{APP}/stats"), ("GET", f"{APP}/logs"), ("POST", "/v1/apps")}
WITHOUT_APP = {("POST", "/v1/apps")}


class OfflineEngine(FakeEngine):
    """An engine whose images come from a server, whose pulls fail with an error of this type."""

    def __init__(self, error: type[ImageServerUnavailable]) -> None:
        super().__init__()
        self._error = error
        for reference in (IMAGE, OTHER_IMAGE):
            image = fake_image(IMAGE_IDS[reference])
            digest = f"app@sha256:{image.id}"
            self.tag(reference, replace(image, local=False, digest=digest, digests=(digest,)))

    def lose_images(self) -> None:
        """Remove the images."""
        for reference in (IMAGE, OTHER_IMAGE):
            self.untag(reference)
            self.untag(IMAGE_IDS[reference])

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        del progress
        raise self._error(f"the server of {reference} sends nothing")


def documented(status: int) -> list[tuple[str, str]]:
    """Return the operations on apps whose document has a status."""
    return [
        (method.upper(), path)
        for path, operations in PATHS.items()
        for method, operation in operations.items()
        if path.startswith("/v1/apps")
        if method != "parameters" and status in operation["responses"]
    ]


async def answers(
    base_url: str, operations: Iterable[tuple[str, str]], *, name: str = "web", prefer: str = ""
) -> dict[tuple[str, str], int]:
    """Return the status by which each operation is answered."""
    found = {}
    headers = {"Authorization": OPERATOR, "Prefer": prefer}
    async with ClientSession(base_url, headers=headers) as session:
        for method, path in operations:
            body = BODIES.get((method, path), b"")
            async with session.request(method, path.format(app_name=name), data=body) as answer:
                found[method, path] = answer.status
    return found


async def create(apps: AskedApps, name: str = "web") -> None:
    """Create an app with a label and two revisions, of different images."""
    await apps.create(NewApp(name=name, image=OTHER_IMAGE), ASKER)
    await apps.update(name, AppChanges(image=IMAGE), ASKER)
    await apps.add_label(name, LABEL, ASKER)


async def create_many(apps: AskedApps) -> None:
    """Create more apps than there is room for on a small disk."""
    for number in range(600):
        await apps.create(NewApp(name=f"app-{number}", image=IMAGE), ASKER)


@asynccontextmanager
async def api_over(engine: FakeEngine, folder: Path) -> AsyncIterator[tuple[AskedApps, str]]:
    """Yield the apps of an agent and the address of its API."""
    log = LogCapture()
    bound = structlog.wrap_logger(None, processors=[log])
    async with (
        running_apps(folder, engine, log, defaults=AT_ONCE) as apps,
        served(apps, new_metrics(), bound) as base_url,
    ):
        yield apps, base_url


async def test_for_an_unknown_app_it_is_404(tmp_path: Path) -> None:
    operations = set(documented(404)) - WITHOUT_APP
    async with api_over(FakeEngine(), tmp_path) as (_, base_url):
        found = await answers(base_url, operations)

    assert found == dict.fromkeys(operations, 404)


async def test_without_an_engine_it_is_503(tmp_path: Path) -> None:
    operations = set(documented(503)) - WITHOUT_ENGINE
    async with api_over(FakeEngine(), tmp_path) as (apps, _):
        await create(apps)
    async with in_process_agent(tmp_path, NO_ENGINE, keep=True) as agent:
        found = await answers(agent.base_url, operations)

    assert found == dict.fromkeys(operations, 503)


@pytest.mark.parametrize("operation", documented(202), ids=" ".join)
async def test_in_the_background_it_is_202(tmp_path: Path, operation: tuple[str, str]) -> None:
    engine, may_stop = FakeEngine(), asyncio.Event()

    async def wait(step: str) -> None:
        if step == "before stop":
            await may_stop.wait()

    async with api_over(engine, tmp_path) as (apps, base_url):
        await create(apps)
        engine.at_step = wait  # a deletion that has ended is 200
        found = await answers(base_url, [operation], prefer="respond-async")
        may_stop.set()

    assert found == {operation: 202}


async def test_beside_another_change_of_the_app_it_is_409(tmp_path: Path) -> None:
    engine, stopping, may_stop = FakeEngine(), asyncio.Event(), asyncio.Event()
    operations = set(documented(409)) - BESIDE_A_CHANGE

    async def wait(step: str) -> None:
        if step == "before stop":
            stopping.set()
            await may_stop.wait()

    async with api_over(engine, tmp_path) as (apps, base_url):
        await create(apps)
        engine.at_step = wait
        stop = asyncio.create_task(apps.stop("web", ASKER))
        await stopping.wait()
        found = await answers(base_url, operations, prefer="wait=0")
        may_stop.set()
        await stop

    assert found == dict.fromkeys(operations, 409)


async def answer_without_images(
    folder: Path, error: type[ImageServerUnavailable], operation: tuple[str, str]
) -> int:
    """Return the status of an operation that needs an image, whose pull fails with this error."""
    engine = OfflineEngine(error)
    async with api_over(engine, folder) as (apps, base_url):
        await create(apps)
        engine.lose_images()
        if operation != ("PUT", APP):  # which pulls nothing for an app without a container
            engine.state.containers.clear()
        found = await answers(base_url, [operation])
    return found[operation]


@pytest.mark.parametrize("operation", documented(502), ids=" ".join)
async def test_without_the_server_of_an_image_that_is_gone_it_is_502(
    tmp_path: Path, operation: tuple[str, str]
) -> None:
    assert await answer_without_images(tmp_path, ImageServerUnavailable, operation) == 502


@pytest.mark.parametrize("operation", documented(429), ids=" ".join)
async def test_while_the_server_of_an_image_limits_the_pulls_it_is_429(
    tmp_path: Path, operation: tuple[str, str]
) -> None:
    assert await answer_without_images(tmp_path, ImageServerBusy, operation) == 429


@pytest.mark.real("mount")
async def test_on_a_full_disk_it_is_507(tmp_path: Path) -> None:
    need_root()
    operations = set(documented(507))
    of_a_stopped_app = {("PUT", f"{APP}/start"), ("PUT", f"{APP}/data")}
    with memory_disk(tmp_path / "disk", size="4m") as folder:
        async with api_over(FakeEngine(), folder) as (apps, base_url):
            await create(apps)
            await create(apps, "stopped")
            await apps.stop("stopped", ASKER)
            fill_disk(folder)
            with pytest.raises(DiskFull):
                await create_many(apps)
            found = await answers(base_url, operations - of_a_stopped_app)
            found |= await answers(base_url, of_a_stopped_app, name="stopped")

    assert found == dict.fromkeys(operations, 507)
