"""A copy of the host for a dry run, whose parts check what can be checked without a change."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from agent.apps.admission.admission import Admission
from agent.apps.admission.disk import DiskGuard, DiskSpace
from agent.apps.admission.ports import HostPorts, Ports, ephemeral_ports
from agent.apps.archives.access import DataAccess
from agent.apps.containers.containers import Containers, do_nothing, port_in_use
from agent.apps.containers.passwords import Passwords
from agent.apps.containers.readiness import Requirement
from agent.apps.containers.volumes import Volumes
from agent.apps.context import AgentContext
from agent.apps.dry_run.engine import PREFIX, UNKNOWN_IMAGE, DryEngine
from agent.apps.health import AppHealth, CheckFailure, HealthChecker
from agent.apps.host import Host
from agent.apps.images.images import AppImages
from agent.apps.runner.job import Job
from agent.apps.runner.runner import cancelled
from agent.apps.runs import Crashes
from agent.engine.models import Container, Image, PullProgress
from agent.journal import CreateEntry, ReplaceEntry
from agent.model import App, HealthCheck
from agent.state.database import AgentDatabase
from agent.state.history import Event, Revision, Statement


def dry_host(host: Host, engine: DryEngine) -> Host:
    """Return a copy of a host that changes nothing but itself; nothing in it has to settle."""
    context = _dry_context(host.context, engine)
    guard = DiskGuard(context.defaults.min_free_percent, host.context.repository.store.folder)
    volumes, passwords = Volumes(context), DryPasswords(context)
    bind = context.defaults.bind
    ports = Ports(context, HostPorts(bind=bind, ephemeral=ephemeral_ports()))
    data = DataAccess(context, volumes, flush_nothing)
    data.in_use = host.data.in_use
    return Host(
        context=context,
        containers=DryContainers(context, engine, volumes, passwords, ports),
        volumes=volumes,
        images=DryImages(context, guard),
        admission=Admission(context, ports, DiskSpace(guard=guard, free=free_nothing)),
        data=data,
        passwords=passwords,
    )


def _dry_context(real: AgentContext, engine: DryEngine) -> AgentContext:
    repository = real.repository.copied(DryStore(real.repository.store.revisions))
    return replace(
        real,
        engine=engine,
        repository=repository,
        ownership=real.ownership.copied(engine, repository),
        defaults=replace(real.defaults, settle_seconds=0),
        health=AppHealth(
            checker=DryHealthChecker(engine),
            findings=real.health.findings.copied(),
            # A change begins anew: earlier ends say nothing about the app as it would be.
            crashes=Crashes(on_loop=do_nothing, clock=real.clock),
            runs=real.health.runs.copied(),
        ),
        log=silent_log(),
        on_change=do_nothing,
    )


def silent_log() -> FilteringBoundLogger:
    """Return a log that writes nothing: a dry run changes nothing that could be logged."""
    log: FilteringBoundLogger = structlog.wrap_logger(None, processors=[_drop])
    return log


def _drop(_logger: Any, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent


async def free_nothing(root: str) -> None:
    """Remove no images."""
    del root


async def flush_nothing() -> None:
    """Wait for no disk: nothing was written."""


class DryStore(AgentDatabase):
    """A store that discards what is written, and reads the history from another store."""

    def __init__(self, history: Callable[[str], Awaitable[list[Revision]]]) -> None:
        super().__init__(Path("/nonexistent"))
        self._history = history

    async def revisions(self, app: str) -> list[Revision]:
        """Return the revisions of an app, the newest first; StoreError."""
        return await self._history(app)

    async def _write(
        self,
        statements: Sequence[Statement],
        event: Event | None = None,
        *,
        then: Callable[[], None] = do_nothing,
    ) -> None:
        del statements, event
        then()


async def recover_ended_pull(host: Host, job: Job, entry: CreateEntry | ReplaceEntry) -> None:
    """Undo an operation that pulls an image, as a `DELETE` or a stop of the app does.

    Nothing else was changed before the pull.
    """
    error = cancelled(entry.header, job.header.operation, by=job.header.by)
    before = None
    if isinstance(entry, ReplaceEntry):
        before = msgspec.structs.replace(entry.before, message=str(error))
    await host.context.repository.finish(entry, before, undone=entry.id, error=error)


class DryHealthChecker(HealthChecker):
    """Reports each app as healthy: its new container does not run."""

    async def failure(
        self, app: App, check: HealthCheck, container: Container
    ) -> CheckFailure | None:
        """Return None: it passes."""
        del app, check, container
        return None


class DryPasswords(Passwords):
    """Checks whether a password could be set in an existing container."""

    async def hash(self, password: str) -> str:
        """Return no hash: nobody keeps it."""
        del password
        return ""

    async def apply(self, container: Container, password: str) -> None:
        """Raise NoSuchUser if it could not be set."""
        del password
        if not container.id.startswith(PREFIX):
            await self.check_settable(container)


class DryImages(AppImages):
    """Accepts an image that would be pulled as the one that is asked for."""

    async def of_version(
        self, app: App, image_id: str, *, progress: Callable[[PullProgress], None]
    ) -> Image:
        """Return the image that an app runs or ran; ImageUnavailable as without a dry run."""
        if app.image_digest is None and await self._context.engine.image(image_id) is None:
            fetched = await self.fetch(app.image, app=app, must_pull=False, progress=progress)
            if fetched is UNKNOWN_IMAGE:
                return fetched
        return await super().of_version(app, image_id, progress=progress)


class DryContainers(Containers):
    """Checks whether the ports of an app that would be started are free."""

    def __init__(self, context: AgentContext, engine: DryEngine, *parts: Any) -> None:
        super().__init__(context, *parts)
        self._dry_engine = engine

    async def start(
        self,
        app: App,
        container_id: str,
        *,
        set_password: bool,
        requirement: Requirement = Requirement.START,
        overdue: Callable[[], None] = do_nothing,
    ) -> App:
        """Return the app as it would be then; PortInUse."""
        published = await self._ports.published()
        for port in (app.ssh_port, app.http_port):
            holder = self._ports.holder(app.name, port, published, app.container_id)
            if holder is not None:
                raise port_in_use(app.name, port, holder)
        await self._dry_engine.publish(container_id, (app.ssh_port, app.http_port))
        return await super().start(
            app,
            container_id,
            set_password=set_password,
            requirement=requirement,
            overdue=overdue,
        )
