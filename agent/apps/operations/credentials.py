"""An app's labels and its password."""

import msgspec

from agent.apps.containers import Workbench
from agent.apps.errors import AppNotRunning, InvalidApp, LabelNotFound, NoSuchUser
from agent.apps.operations.runner import RunningOperation
from agent.apps.passwords import check_password, hash_password
from agent.apps.validation import MAX_APP_LABELS, check_label, excerpt
from agent.engine.protocol import EngineConflict, ObjectNotFound
from agent.model import App, Change


class LabelsAndCredentials:
    """Changes what the agent keeps of an app besides its container."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    async def add_label(self, name: str, label: str) -> None:
        """Add a label; fine if the app has it. InvalidLabel."""
        check_label(label)
        app = self._bench.repository.get(name)
        if label in app.labels:
            return
        if len(app.labels) >= MAX_APP_LABELS:
            raise InvalidApp(f"app `{name}` has {MAX_APP_LABELS} labels, and may have no more")
        await self._label(app, (*app.labels, label))

    async def remove_label(self, name: str, label: str) -> None:
        """Remove a label. InvalidLabel, LabelNotFound."""
        check_label(label)
        app = self._bench.repository.get(name)
        if label not in app.labels:
            raise LabelNotFound(f"app `{name}` has no label {excerpt(label)}")
        await self._label(app, tuple(each for each in app.labels if each != label))

    async def _label(self, app: App, labels: tuple[str, ...]) -> None:
        # The answer is the record, so without the engine there is none, and nothing is changed.
        await self._bench.current(app)
        await self._bench.repository.put(msgspec.structs.replace(app, labels=labels))

    async def set_password(self, job: RunningOperation, name: str, password: str) -> None:
        """Set the password of the app's user: now, or when a stopped app starts.

        Raises:
            InvalidPassword: it is none.
            NoSuchUser: the image has no such user, or nothing that sets passwords.
            AppNotRunning: the app is paused, or between two starts.

        """
        bench, app = self._bench, self._bench.repository.get(name)
        check_password(password, min_length=bench.defaults.password_min)
        container = await bench.current(app)
        if container is not None and container.state in ("paused", "restarting"):
            raise AppNotRunning(
                f"app `{name}` is {container.state}; start or stop it, then set the password"
            )
        running = container is not None and container.state == "running"
        if container is not None and not running:
            await bench.passwords.check_settable(container)
        target = msgspec.structs.replace(
            app, password=await hash_password(password), password_pending=not running
        )
        change = await bench.repository.begin(bench.change(job, before=app, target=target))
        job.committed.set()
        await self.settle_password(change)

    async def settle_password(self, change: Change) -> None:
        """Set the password where the app runs; else it stays for the next start."""
        assert change.target is not None
        try:
            target = await self._apply(change.target)
        except NoSuchUser as error:
            kept = change.before
            if kept is not None and change.promised:  # else the answer tells
                kept = msgspec.structs.replace(kept, message=str(error))
            await self._bench.repository.finish(change, kept)
            raise
        await self._bench.repository.finish(change, target)

    async def supply_password(self, name: str) -> None:
        """Set the password that waits for the app to run."""
        app = self._bench.repository.get(name)
        if not app.password_pending:
            return
        try:
            app = await self._apply(app)
        except NoSuchUser as error:
            message = f"the password was dropped: {error}"
            app = msgspec.structs.replace(
                app, password=None, password_pending=False, message=message
            )
        await self._bench.repository.put(app)

    async def _apply(self, app: App) -> App:
        container = await self._bench.current(app)
        pending = True
        if container is not None and container.state == "running":
            assert app.password is not None
            try:
                await self._bench.passwords.apply(container, app.password)
                pending = False
            except (EngineConflict, ObjectNotFound):
                pending = True  # it ended meanwhile
        return msgspec.structs.replace(app, password_pending=pending)
