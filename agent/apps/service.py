"""The apps of this host: everything that can be asked of them."""

import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection

from structlog.typing import FilteringBoundLogger

from agent.apps.containers import Workbench
from agent.apps.defaults import AppDefaults
from agent.apps.disk import DiskGuard
from agent.apps.errors import AppError
from agent.apps.hosted_apps import HostedAppsQuery
from agent.apps.images import Images
from agent.apps.operations.create import CreateOperation
from agent.apps.operations.credentials import LabelsAndCredentials
from agent.apps.operations.lifecycle import Lifecycle
from agent.apps.operations.replacement import Replacement
from agent.apps.operations.runner import OperationRunner, Requester, RunningOperation
from agent.apps.operations.starter import ContainerStarter
from agent.apps.operations.update import UpdateOperation
from agent.apps.passwords import Passwords
from agent.apps.ports import Ports, can_listen, ephemeral_ports
from agent.apps.queries import AppQueries, Stats
from agent.apps.recovery.adoption import Adoption
from agent.apps.recovery.recovery import Recovery
from agent.apps.recovery.retries import Retries
from agent.apps.recovery.watcher import EngineWatcher
from agent.apps.repository import AppRepository
from agent.apps.validation import AppChanges, NewApp
from agent.apps.views import AppView
from agent.engine.protocol import Engine, EngineError, EngineUnavailable, Process
from agent.model import Change, OperationKind
from agent.reporting.heartbeat import HostedApps
from agent.state.store import Store

FIRST_RESYNC_SECONDS = 5.0
Work = Callable[[RunningOperation], Awaitable[None]]


class Apps:
    """The apps of this host.

    Each change is written down before it is begun, goes on in a task of its own whatever becomes of
    the client, and is the only one of its app at a time. What broke off is finished or undone at
    the next start, or when the engine is back.

    ``on_change`` is called after each change of the apps, their labels or their states, those made
    behind the agent's back included, and when the engine goes or comes.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        defaults: AppDefaults,
        log: FilteringBoundLogger,
        on_change: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._engine = engine
        self._repository = AppRepository(store)
        self._operations = OperationRunner(clock=clock, on_change=self._operation_ended, log=log)
        self._on_change = on_change
        self._log = log
        self._images = Images(engine=engine, log=log)
        bench = self._bench(defaults, clock, log)
        starter = ContainerStarter(bench)
        self._create_operation = CreateOperation(bench, starter)
        self._update_operation = UpdateOperation(bench, Replacement(bench, starter))
        self._lifecycle = Lifecycle(bench, starter, self._update_operation)
        self._labels_and_credentials = LabelsAndCredentials(bench)
        self._queries = AppQueries(
            engine=engine, repository=self._repository, operations=self._operations
        )
        self._hosted_apps = HostedAppsQuery(
            repository=self._repository, containers=self._queries.containers, on_change=on_change
        )
        self._recovery = self._build_recovery(bench)
        self._watcher = EngineWatcher(
            engine=engine,
            repository=self._repository,
            operations=self._operations,
            recovery=self._recovery,
            queries=self._queries,
            retries=Retries(time.monotonic),
            on_change=on_change,
            clock=clock,
            log=log,
        )

    def _bench(
        self, defaults: AppDefaults, clock: Callable[[], float], log: FilteringBoundLogger
    ) -> Workbench:
        return Workbench(
            engine=self._engine,
            repository=self._repository,
            images=self._images,
            passwords=Passwords(engine=self._engine, default_user=defaults.ssh_user),
            ports=Ports(
                engine=self._engine,
                repository=self._repository,
                pick_from=defaults.ports,
                probe=lambda port: can_listen(defaults.bind, port),
                ephemeral=ephemeral_ports(),
                rng=secrets.SystemRandom(),
                log=log,
            ),
            disk_guard=DiskGuard(
                min_free_percent=defaults.min_free_percent, database_directory=self._store.folder
            ),
            defaults=defaults,
            clock=clock,
            log=log,
        )

    def _build_recovery(self, bench: Workbench) -> Recovery:
        return Recovery(
            bench=bench,
            operations=self._operations,
            create_operation=self._create_operation,
            update_operation=self._update_operation,
            lifecycle=self._lifecycle,
            labels_and_credentials=self._labels_and_credentials,
            adoption=Adoption(bench),
        )

    async def open(self) -> None:
        """Read the database, and begin to watch the engine, which need not be there.

        Raises:
            StoreUnusable: the database cannot be used, and was left as it is.

        """
        self._repository.load(await self._store.open())
        await self._watcher.open(FIRST_RESYNC_SECONDS)

    async def close(self, seconds: float = 30.0) -> None:
        """Wait, at most so long, for changes under way; what is cut off is settled at a start."""
        await self._operations.close(seconds)
        await self._watcher.close()
        await self._hosted_apps.close()
        await self._images.close()
        await self._engine.close()
        await self._repository.close()

    async def create(self, wanted: NewApp, requester: Requester) -> AppView:
        """Create an app and see it run; its record."""
        busy = self._operations.current(wanted.name) or self._repository.change(wanted.name)
        if not busy:  # else it may be gone when its turn comes
            self._create_operation.check_free(wanted.name)
        return await self._change(
            wanted.name, "create", requester, lambda job: self._create_operation.create(job, wanted)
        )

    async def update(self, name: str, changes: AppChanges, requester: Requester) -> AppView:
        """Change fields of an app."""
        return await self._change(
            name, "update", requester, lambda job: self._update_operation.update(job, name, changes)
        )

    async def rebuild(self, name: str, requester: Requester) -> AppView:
        """Pull an app's image and replace its container."""
        return await self._change(
            name, "rebuild", requester, lambda job: self._update_operation.rebuild(job, name)
        )

    async def start(self, name: str, requester: Requester) -> AppView:
        """Let an app run."""
        return await self._change(
            name, "start", requester, lambda job: self._lifecycle.start(job, name)
        )

    async def stop(self, name: str, requester: Requester) -> AppView:
        """Let an app end."""
        return await self._change(
            name, "stop", requester, lambda job: self._lifecycle.stop(job, name)
        )

    async def delete(
        self, name: str, requester: Requester, *, keep_data: bool = False
    ) -> AppView | None:
        """Remove an app and, unless it is to be kept, its data; None once it is gone."""
        self._repository.get(name)
        job = await self._operations.take(name, "delete", requester)
        done = await self._operations.run(
            job,
            self._run_after_recovery(
                job, lambda t: self._lifecycle.delete(t, name, keep_data=keep_data)
            ),
        )
        return None if done else await self._queries.one(name)

    async def set_password(self, name: str, password: str, requester: Requester) -> AppView:
        """Set the password of the app's user."""
        return await self._change(
            name,
            "keys",
            requester,
            lambda job: self._labels_and_credentials.set_password(job, name, password),
        )

    async def add_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Add a label to an app."""
        return await self._change(
            name, "label", requester, lambda _: self._labels_and_credentials.add_label(name, label)
        )

    async def remove_label(self, name: str, label: str, requester: Requester) -> AppView:
        """Remove a label from an app."""
        return await self._change(
            name,
            "label",
            requester,
            lambda _: self._labels_and_credentials.remove_label(name, label),
        )

    async def _change(
        self, name: str, operation: OperationKind, requester: Requester, work: Work
    ) -> AppView:
        if operation != "create":
            self._repository.get(name)
        job = await self._operations.take(name, operation, requester)
        await self._operations.run(job, self._run_after_recovery(job, work))
        return await self._queries.one(name)

    async def _run_after_recovery(self, job: RunningOperation, work: Work) -> None:
        unfinished = self._repository.change(job.app)
        if unfinished is not None:
            await self._recover(job, unfinished)
            deleted = unfinished.operation == job.operation == "delete"
            if deleted and self._repository.find(job.app) is None:
                return
        await work(job)

    async def _recover(self, job: RunningOperation, unfinished: Change) -> None:
        """Settle what broke off before; how that fails is not this caller's business."""
        try:
            await self._recovery.recover(job, unfinished)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            # A delete takes the place of anything; else the row that is left must go first.
            if self._repository.change(job.app) is not None and job.operation != "delete":
                raise
            reason = getattr(error, "reason", str(error))
            self._log.warning("change that broke off failed", app=job.app, reason=reason)

    def _operation_ended(self) -> None:
        self._watcher.operation_ended()
        self._on_change()

    async def all(
        self, *, labels: Collection[str] = (), states: Collection[str] = ()
    ) -> list[AppView]:
        """List apps by name: those with all of the labels, in any of the states."""
        return await self._queries.all(labels=labels, states=states)

    async def get(self, name: str) -> AppView:
        """Give an app's record."""
        return await self._queries.one(name)

    async def processes(self, name: str) -> list[Process]:
        """List an app's processes, none when it does not run."""
        return await self._queries.processes(name)

    async def stats(self, name: str) -> Stats:
        """Measure an app."""
        return await self._queries.stats(name)

    async def logs(
        self, name: str, *, tail: int | None, since: float | None, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Give what an app wrote; close the generator to end it."""
        return await self._queries.logs(name, tail=tail, since=since, follow=follow)

    async def hosted_apps(self) -> HostedApps:
        """Tell the roll call what is hosted here; never fails, and never takes long."""
        return await self._hosted_apps.hosted_apps(version=self._watcher.version)
