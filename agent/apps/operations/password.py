"""Setting the password of an app's user."""

import msgspec

from agent.apps.containers.manager import ContainerManager
from agent.apps.containers.passwords import Passwords, check_password, hash_password
from agent.apps.errors import AppNotRunning, NoSuchUser
from agent.apps.operations.job import Job
from agent.apps.repository.repository import AppRepository
from agent.engine.errors import EngineConflict, EngineRefused, ObjectNotFound
from agent.journal import PasswordEntry
from agent.model import App


class PasswordOperation:
    """Sets a password: now, or when a stopped app starts."""

    def __init__(
        self,
        *,
        repository: AppRepository,
        containers: ContainerManager,
        passwords: Passwords,
        min_length: int,
    ) -> None:
        self._repository = repository
        self._containers = containers
        self._passwords = passwords
        self._min_length = min_length

    async def run(self, job: Job, password: str) -> None:
        """Set the password of the app's user.

        Raises:
            InvalidPassword: the text cannot be a password.
            NoSuchUser: the image has no such user, or no program that sets passwords.
            AppNotRunning: the app is paused, or between two starts.
            EngineRefused: the engine runs no program in the app, which is as it was. In the
                background the password is pending, and the app's ``message`` has the reason.

        """
        app = self._repository.get(job.app)
        check_password(password, min_length=self._min_length)
        container = await self._containers.current(app)
        if container is not None and container.state in ("paused", "restarting"):
            raise AppNotRunning(
                f"app `{app.name}` is {container.state}; start or stop it, then set the password"
            )
        running = container is not None and container.state == "running"
        if container is not None and not running:
            await self._passwords.check_settable(container)
        target = msgspec.structs.replace(
            app,
            password=await hash_password(password),
            password_pending=not running,
            message=None if app.password_pending else app.message,
        )
        entry = PasswordEntry(header=job.header, before=app, target=target)
        await job.commit(entry)
        await self._carry_out(entry, answers=not job.header.background)

    async def recover(self, _job: Job, entry: PasswordEntry) -> None:
        """Set the password in a running container; else leave it for the next start.

        Raises:
            NoSuchUser: the app is as it was, and its ``message`` has the reason.
            EngineRefused: the password is pending, and the app's ``message`` has the reason.

        """
        await self._carry_out(entry, answers=False)

    async def _carry_out(self, entry: PasswordEntry, *, answers: bool) -> None:
        """Set the password; ``answers`` says that somebody gets the error in the response."""
        try:
            app = await self._apply(entry.target)
        except NoSuchUser as error:
            await self._fail(entry, entry.before, error, answers=answers)
            raise
        except EngineRefused as error:
            seen = await self._look(entry.target)
            if seen is None:
                pending = msgspec.structs.replace(entry.target, password_pending=True)
                left = entry.before if answers else pending
                await self._fail(entry, left, error, answers=answers)
                raise
            app = seen
        await self._repository.finish(entry, app)

    async def _fail(
        self, entry: PasswordEntry, app: App, error: Exception, *, answers: bool
    ) -> None:
        if not answers:
            app = msgspec.structs.replace(app, message=str(error))
        await self._repository.finish(entry, app, error=error)

    async def _look(self, app: App) -> App | None:
        """Return the app as its container has it, None if that runs without the password.

        A `chpasswd` whose answer was lost may have set it.
        """
        try:
            container = await self._containers.current(app)
        except EngineRefused:
            return None
        if container is None or container.state != "running":
            return msgspec.structs.replace(app, password_pending=True)
        if await self._passwords.read_hash(container) != app.password:
            return None
        return msgspec.structs.replace(app, password_pending=False)

    async def apply_pending(self, job: Job) -> None:
        """Set the password that waits for the app to run, after somebody else has started it."""
        app = self._repository.get(job.app)
        if not app.password_pending:
            return
        dropped = None
        try:
            app = await self._apply(app)
            if not app.password_pending:
                app = msgspec.structs.replace(app, message=None)
        except NoSuchUser as error:
            dropped = error
            app = msgspec.structs.replace(
                app,
                password=await self._held(app),
                password_pending=False,
                message=f"the password was dropped: {error}",
            )
        await self._repository.put(app, outcome_of=job.header, error=dropped)

    async def _held(self, app: App) -> str | None:
        """Return the hash that the app's container has, such as that of an earlier password."""
        container = await self._containers.current(app)
        return None if container is None else await self._passwords.read_hash(container)

    async def _apply(self, app: App) -> App:
        pending = True
        container = await self._containers.current(app)
        if container is not None and container.state == "running" and app.password is not None:
            try:
                await self._passwords.apply(container, app.password)
                pending = False
            except (EngineConflict, ObjectNotFound):
                pending = True  # it has ended meanwhile
        return msgspec.structs.replace(app, password_pending=pending)
