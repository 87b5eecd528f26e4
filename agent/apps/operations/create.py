"""Creating an app: all of it, or nothing of it."""

import msgspec

from agent.apps.containers import UP_STATES, Workbench
from agent.apps.errors import AppError, AppExists, NameTaken
from agent.apps.operations.runner import RunningOperation
from agent.apps.operations.starter import ContainerStarter
from agent.apps.validation import NewApp, check_fits_host, check_new_app
from agent.engine.protocol import Container, EngineError, EngineUnavailable, NameInUse
from agent.model import App, Change


class CreateOperation:
    """Creates apps, and settles creations that broke off."""

    def __init__(self, bench: Workbench, starter: ContainerStarter) -> None:
        self._bench = bench
        self._starter = starter

    async def create(self, job: RunningOperation, wanted: NewApp) -> None:
        """Create an app and see it run.

        Raises:
            InvalidApp, AppExists, NameTaken, PortInUse, NoFreePort, DiskFull, ImageUnavailable,
            StartFailed: nothing is left of the attempt, unless it goes on behind a promise; then
                the app is kept as failed, with the reason.

        """
        bench = self._bench
        check_new_app(wanted)
        self.check_free(wanted.name)
        host = await bench.engine.info()
        bench.disk_guard.check(host.data_root)
        published = await bench.ports.published()
        _check_name(wanted.name, published)
        app = self._app(wanted, published)
        check_fits_host(app, host)
        change = await bench.repository.begin(bench.change(job, before=None, target=app))
        job.committed.set()
        await self._carry_out(job, change)

    def check_free(self, name: str) -> None:
        """Refuse the name of an app that is there; AppExists."""
        if self._bench.repository.find(name) is not None:
            raise AppExists(f"there is an app `{name}` already; choose another name")

    def _app(self, wanted: NewApp, published: list[Container]) -> App:
        defaults, ports = self._bench.defaults, self._bench.ports
        asked = [port for port in (wanted.ssh_port, wanted.http_port) if port]
        for port in asked:
            ports.check(wanted.name, port, published, None)
        ssh_port = wanted.ssh_port or ports.pick(wanted.name, published, asked)
        http_port = wanted.http_port or ports.pick(wanted.name, published, [*asked, ssh_port])
        return App(
            name=wanted.name,
            image=wanted.image,
            ssh_port=ssh_port,
            http_port=http_port,
            cpu=defaults.cpu if wanted.cpu is msgspec.UNSET else wanted.cpu,
            memory=defaults.memory if wanted.memory is msgspec.UNSET else wanted.memory,
            env=wanted.env,
            created_at=self._bench.now(),
        )

    async def _carry_out(self, job: RunningOperation, change: Change) -> None:
        try:
            app = await self._bring_up(job, change)
        except EngineUnavailable:
            raise  # what happened is not known; it is settled when the engine is back
        except (AppError, EngineError) as error:
            await self.undo(change, error)
            raise
        await self._bench.repository.finish(change, app)

    async def _finish(self, change: Change, app: App, container_id: str) -> None:
        try:
            app = await self._starter.start(app, container_id, password=True)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            await self.undo(change, error)
            raise
        await self._bench.repository.finish(change, app)

    async def _bring_up(self, job: RunningOperation, change: Change) -> App:
        bench, app = self._bench, change.target
        assert app is not None
        image = await bench.fetch(job, app.image, must_pull=False)
        try:
            container_id = await bench.make(change, image, name=app.name)
        except NameInUse as error:
            raise _name_taken(app.name) from error
        return await self._starter.start(app, container_id, password=True)

    async def undo(self, change: Change, error: Exception) -> None:
        """Take away all that the creation has made."""
        await self._bench.discard(change)
        kept = None
        if change.promised and change.target is not None:
            kept = msgspec.structs.replace(change.target, failed=True, message=str(error))
        await self._bench.repository.finish(change, kept, undone=change.id)

    async def recover(self, job: RunningOperation, change: Change) -> None:
        """End a creation that broke off: well if its container runs, else it never was.

        One that was promised is begun anew instead, unless the app is to be deleted now.
        """
        made = await self._bench.made_by(change)
        running = [each for each in made if each.state in UP_STATES]
        if running and change.target is not None:
            await self._finish(change, change.target, running[0].id)
        elif change.promised and job.operation != "delete":
            await self._bench.discard_made_by(change)
            job.committed.set()
            await self._carry_out(job, change)
        else:
            await self.undo(change, EngineUnavailable("the creation broke off"))


def _check_name(name: str, containers: list[Container]) -> None:
    if any(each.name == name for each in containers):
        raise _name_taken(name)


def _name_taken(name: str) -> NameTaken:
    return NameTaken(
        f"there is a container `{name}` that is not the agent's; it is left alone, so choose"
        " another name"
    )
