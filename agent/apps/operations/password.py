"""Setting the password of an app's user."""

import msgspec

from agent.apps.containers.passwords import check_password
from agent.apps.errors import AppNotRunning, NoSuchUser
from agent.apps.host import Host
from agent.apps.requests import ApplyPassword, SetPassword
from agent.apps.runner.job import Job
from agent.journal import PasswordEntry
from agent.model import App


async def plan_password(host: Host, job: Job, request: SetPassword) -> PasswordEntry:
    """Plan to set the password of the app's user.

    Raises:
        InvalidPassword: the text cannot be a password.
        NoSuchUser: the image has no such user, or no program that sets passwords.
        AppNotRunning: the app is paused, or between two starts.

    """
    app = host.context.repository.get(job.app)
    check_password(request.password, min_length=host.context.defaults.password_min)
    container = await host.containers.current(app)
    if container is not None and container.state in ("paused", "restarting"):
        raise AppNotRunning(
            f"app `{app.name}` is {container.state}; start or stop it, then set the password"
        )
    running = container is not None and container.state == "running"
    if container is not None and not running:
        await host.passwords.check_settable(container)
    target = msgspec.structs.replace(
        app,
        password=await host.passwords.hash(request.password),
        password_pending=not running,
        # It was the reason for which the earlier one is pending.
        message=None if app.password_pending else app.message,
    )
    return PasswordEntry(header=job.header, before=app, target=target)


async def carry_out_password(host: Host, _job: Job, entry: PasswordEntry) -> None:
    """Set the password in a running container; else leave it for the next start.

    It is pending where the engine rejects that now. NoSuchUser: the app is as it was.
    """
    await _carry_out(host, entry, answers=not entry.header.background)


async def recover_password(host: Host, _job: Job, entry: PasswordEntry) -> None:
    """Set the password in a running container; else leave it for the next start.

    Raises:
        NoSuchUser: the app is as it was, and its ``message`` has the reason.

    """
    await _carry_out(host, entry, answers=False)


async def _carry_out(host: Host, entry: PasswordEntry, *, answers: bool) -> None:
    """Set the password; ``answers`` says that somebody gets the error in the response."""
    try:
        app = await _set(host, entry.target)
    except NoSuchUser as error:
        message = entry.before.message if answers else str(error)
        before = msgspec.structs.replace(entry.before, message=message)
        await host.context.repository.finish(entry, before, error=error)
        raise
    await host.context.repository.finish(entry, app)


async def _set(host: Host, app: App) -> App:
    container = await host.containers.current(app)
    if container is None or container.state != "running":
        return msgspec.structs.replace(app, password_pending=True)
    return await host.passwords.set_pending(app, container)


async def apply_pending(host: Host, job: Job, _request: ApplyPassword) -> None:
    """Set the password that waits for the app to run, after somebody else has started it."""
    app = host.context.repository.get(job.app)
    container = await host.containers.current(app)
    if not app.password_pending or container is None or container.state != "running":
        return
    dropped = None
    try:
        after = await host.passwords.set_pending(app, container)
    except NoSuchUser as error:
        dropped = error
        after = await host.passwords.drop(app, container, error)
    if not after.password_pending:
        await host.context.repository.put(after, outcome_of=job.header, error=dropped)
    elif after != app:
        await host.context.repository.put(after)
