"""What the present state forbids is rejected with 409, and the message says what one can do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from agent.apps import errors
from agent.apps.defaults import AppDefaults
from agent.apps.errors import STATUS_BY_ERROR, AppError
from agent.apps.ownership.adopt import Adopter
from agent.engine.errors import EngineConflict, EngineError
from agent.engine.models import MIB, EngineInfo, ExecResult, PullProgress, Sample
from agent.model import AppChanges, NewApp
from httpd.errors import ErrorTable
from tests.support.agent.engines.fake_engine import BROKEN_IMAGE, IMAGE, FakeEngine, fake_image
from tests.support.agent.in_process import identity_of
from tests.support.agent.running_apps import ASKER, AT_ONCE, AskedApps, running_apps
from tests.support.waiting import async_until

pytestmark = pytest.mark.slow


REMOTE = "app:remote"
LIMITED = replace(AT_ONCE, overcommit_percent=50)


class HardEngine(FakeEngine):
    """An engine whose apps use 20 MiB, have no `chpasswd`, and can neither pause nor go on.

    A pull of REMOTE does not end. The host has ``cores``. Commands end with ``exit_code``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cores = 4
        self.pulling = asyncio.Event()
        self.exit_code = 127

    async def info(self) -> EngineInfo:
        return replace(await super().info(), cpus=self.cores)

    async def pull(self, reference: str, progress: Callable[[PullProgress], None]) -> None:
        if reference == REMOTE:
            progress(PullProgress(done_bytes=0, total_bytes=1))
            self.pulling.set()
            await asyncio.Event().wait()
        await super().pull(reference, progress)

    async def sample(self, container_id: str, *, priority: bool = False) -> Sample | None:
        sample = await super().sample(container_id, priority=priority)
        return sample and replace(sample, memory_bytes=20 * MIB)

    async def execute(
        self,
        container_id: str,
        command: list[str],
        *,
        stdin: bytes = b"",
        as_root: bool = True,
        seconds: float | None = None,
    ) -> ExecResult:
        del container_id, command, stdin, as_root, seconds
        return ExecResult(exit_code=self.exit_code, output="")

    async def pause(self, container_id: str) -> None:
        raise EngineConflict(f"{container_id} cannot be paused")

    async def unpause(self, container_id: str) -> None:
        raise EngineConflict(f"{container_id} is not paused")


@dataclass(kw_only=True)
class Scene:
    """What a rejection happens on."""

    apps: AskedApps
    engine: HardEngine
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """What is rejected, by which error, and which way out its message names."""

    attempt: Callable[[Scene], Awaitable[object]]
    error: type[Exception]
    remedy: str
    defaults: AppDefaults = LIMITED


async def nothing() -> AsyncIterator[bytes]:
    yield b""


async def export(scene: Scene) -> None:
    async with scene.apps.export("web", ASKER, pause=True):
        pass


async def export_without_volume(scene: Scene) -> None:
    del scene.engine.state.volumes["rollcall-off"]
    async with scene.apps.export("off", ASKER, pause=False):
        pass


async def set_password_in_vain(at: Scene) -> None:
    at.engine.exit_code = 1
    await at.apps.set_password("web", "correct horse", ASKER)


async def roll_back_to_more_cores(scene: Scene) -> None:
    for cpu in (400, 100):
        await scene.apps.update("web", AppChanges(cpu=cpu), ASKER)
    scene.engine.cores = 1
    await scene.apps.rollback("web", 2, ASKER)


async def cancel_a_creation(scene: Scene) -> None:
    creation = asyncio.ensure_future(scene.apps.create(NewApp(name="new", image=REMOTE), ASKER))
    await scene.engine.pulling.wait()
    await scene.apps.delete("new", ASKER)
    await creation


async def change_while_it_stops(scene: Scene) -> None:
    stopping, may_end = asyncio.Event(), asyncio.Event()

    async def take_long(step: str) -> None:
        if step == "before stop":
            stopping.set()
            await may_end.wait()

    scene.engine.at_step = take_long
    stop = asyncio.ensure_future(scene.apps.stop("web", ASKER))
    await stopping.wait()
    try:
        await scene.apps.start("web", replace(ASKER, wait_seconds=0))
    finally:
        may_end.set()
        await stop


async def change_what_another_agent_adopted(scene: Scene) -> None:
    identity = identity_of(scene.folder / "another", "another-identity")
    adopter = Adopter(engine=scene.engine, identity=identity, claim_seconds=0)
    await adopter.adopt(list(await adopter.foreign()))
    scene.engine.go_away()  # so that the agent looks at all containers again

    async def noticed() -> bool:
        return (await scene.apps.queries.one("web")).state == "missing"

    await async_until(noticed)
    await scene.apps.stop("web", ASKER)


async def create_in_a_network_that_does_not_isolate(scene: Scene) -> None:
    known = scene.engine.networks["rollcall"]
    scene.engine.networks["rollcall"] = replace(known, reachable=True)
    await scene.apps.create(NewApp(name="new", image=IMAGE), ASKER)


async def create_of_an_image_with_a_large_configuration(scene: Scene) -> None:
    scene.engine.tag("app:long", replace(fake_image("i9"), config_bytes=70_000))
    await scene.apps.create(NewApp(name="new", image="app:long"), ASKER)


REJECTED = {
    "a name in use": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="web", image=IMAGE), ASKER),
        error=errors.AppExists,
        remedy="choose another name",
    ),
    "the name of a foreign container": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="theirs", image=IMAGE), ASKER),
        error=errors.NameTaken,
        remedy="choose another name, or rename that container",
    ),
    "the name of a foreign volume": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="other", image=IMAGE), ASKER),
        error=errors.NameTaken,
        remedy="choose another name for the app",
    ),
    "a port in use": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="new", image=IMAGE, http_port=21001), ASKER),
        error=errors.PortInUse,
        remedy="name another, or 0 for a free one",
    ),
    "any port where none is free": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="new", image=IMAGE), ASKER),
        error=errors.NoFreePort,
        remedy="widen `apps.ports`",
        defaults=replace(AT_ONCE, ports=range(21000, 21002)),
    ),
    "more memory than may be promised": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="new", image=IMAGE, memory=4000), ASKER),
        error=errors.MemoryPromised,
        remedy="give this app less memory, or delete or limit others",
    ),
    "a program that does not start": Rejection(
        attempt=lambda at: at.apps.create(NewApp(name="new", image=BROKEN_IMAGE), ASKER),
        error=errors.StartFailed,
        remedy="change its `image` or `command`",
    ),
    "an image that cannot be used": Rejection(
        attempt=create_of_an_image_with_a_large_configuration,
        error=errors.UnfitImage,
        remedy="build it with less",
    ),
    "a network that does not isolate": Rejection(
        attempt=create_in_a_network_that_does_not_isolate,
        error=errors.NetworkUnfit,
        remedy="remove it, and the agent makes its own, or set `apps.isolated: false`",
        defaults=replace(AT_ONCE, isolated=True),
    ),
    "figures of what does not run": Rejection(
        attempt=lambda at: at.apps.queries.stats("off"),
        error=errors.AppNotRunning,
        remedy="start it",
    ),
    "the log of what has no container": Rejection(
        attempt=lambda at: at.apps.queries.logs("lost", tail=1, since=None, follow=False),
        error=errors.AppNotRunning,
        remedy="start it",
    ),
    "new data for what runs": Rejection(
        attempt=lambda at: at.apps.restore("web", nothing(), ASKER),
        error=errors.AppNotStopped,
        remedy="stop it before its data is replaced",
    ),
    "data of which a volume is gone": Rejection(
        attempt=export_without_volume,
        error=errors.DataMissing,
        remedy="rebuild app `off` to have it made again",
    ),
    "less memory than is used": Rejection(
        attempt=lambda at: at.apps.update("web", AppChanges(memory=10), ASKER),
        error=errors.MemoryInUse,
        remedy="stop it first, or leave it more",
    ),
    "a password where none can be set": Rejection(
        attempt=lambda at: at.apps.set_password("web", "correct horse", ASKER),
        error=errors.NoSuchUser,
        remedy="change to an image that has it",
    ),
    "a password that its program does not set": Rejection(
        attempt=set_password_in_vain,
        error=errors.PasswordProgramFailed,
        remedy="make room if that is the reason",
    ),
    "data that is used": Rejection(
        attempt=lambda at: at.apps.delete("web", ASKER),
        error=errors.DataInUse,
        remedy="remove that first, or delete the app with ?keep_data=true",
    ),
    "a revision before the first": Rejection(
        attempt=lambda at: at.apps.rollback("web", None, ASKER),
        error=errors.NoRevisionBefore,
        remedy="GET /v1/apps/web/history lists those that are kept",
    ),
    "a revision that does not fit the host any more": Rejection(
        attempt=roll_back_to_more_cores,
        error=errors.RollbackRejected,
        remedy="update the app to the other fields of that revision",
    ),
    "a change whose pull somebody ended": Rejection(
        attempt=cancel_a_creation,
        error=errors.OperationCancelled,
        remedy="ask again if it is still wanted",
    ),
    "a change during another one": Rejection(
        attempt=change_while_it_stops,
        error=errors.AppBusy,
        remedy="try again later, or wait longer with `Prefer: wait=SECONDS`",
    ),
    "a change of what another agent adopted": Rejection(
        attempt=change_what_another_agent_adopted,
        error=errors.AppOfAnother,
        remedy="ask that one, or end it and run `rollcall-agent adopt` here",
    ),
    "a pause that fails": Rejection(
        attempt=export,
        error=errors.AppNotRunning,
        remedy="read its data without `pause`, or ask again",
    ),
    "what the engine rejects": Rejection(
        attempt=lambda at: at.apps.start("paused", ASKER),
        error=EngineConflict,
        remedy="look at the app as it is now, and ask again",
    ),
}


def rejections() -> set[type[AppError]]:
    """Return the errors of apps that are answered with 409."""
    found, todo = set[type[AppError]](), [*AppError.__subclasses__()]
    while todo:
        each = todo.pop()
        todo += each.__subclasses__()
        status = next(STATUS_BY_ERROR[of] for of in each.__mro__ if of in STATUS_BY_ERROR)
        if status == HTTPStatus.CONFLICT:
            found.add(each)
    return found


async def prepare(apps: AskedApps, engine: FakeEngine) -> None:
    for number, name in enumerate(("web", "off", "lost", "paused")):
        ports = {"ssh_port": 21000 + 2 * number, "http_port": 21001 + 2 * number}
        await apps.create(NewApp(name=name, image=IMAGE, **ports), ASKER)
    await apps.stop("off", ASKER)
    by_name = {each.name: each for each in engine.state.containers.values()}
    by_name["paused"].state = "paused"
    del engine.state.containers[by_name["lost"].id]
    theirs = msgspec.structs.replace(by_name["web"], id="theirs", name="theirs", ports=[])
    theirs.labels = {}
    engine.state.containers["theirs"] = theirs
    engine.state.volumes["rollcall-other"] = {"rollcall.app": "other", "rollcall.agent": "another"}


@pytest.mark.parametrize("name", REJECTED)
async def test_the_message_names_the_way_out(tmp_path: Path, name: str) -> None:
    rejected, engine = REJECTED[name], HardEngine()
    log = structlog.wrap_logger(None, processors=[LogCapture()])
    async with running_apps(tmp_path, engine, LogCapture(), defaults=rejected.defaults) as apps:
        await prepare(apps, engine)

        with pytest.raises((AppError, EngineError)) as caught:
            await rejected.attempt(Scene(apps=apps, engine=engine, folder=tmp_path))

    problem = ErrorTable(STATUS_BY_ERROR, log=log).problem(caught.value, path="/")
    assert problem.status == HTTPStatus.CONFLICT
    assert rejected.remedy in problem.text
    assert type(caught.value) is rejected.error


def test_each_error_of_409_is_tried() -> None:
    assert rejections() <= {rejected.error for rejected in REJECTED.values()}
