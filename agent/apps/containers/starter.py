"""Starting the container of an app."""

import re
from collections.abc import Callable
from contextlib import suppress

import msgspec

from agent.apps.admission.ports import Ports
from agent.apps.containers.commands import ContainerCommands
from agent.apps.containers.cpu import wrong_cpu
from agent.apps.containers.passwords import Passwords
from agent.apps.containers.readiness import STABLE_STATES, Readiness, Requirement
from agent.apps.errors import NoSuchUser, PortInUse, StartFailed
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineRefused,
    HostPortInUse,
    NetworkNotFound,
    ObjectNotFound,
    PortsNotPublished,
)
from agent.engine.models import Container, InspectedContainer
from agent.model import App

OTHER_PORT = "end that one, or give the app another port"
PORT_IN_ERROR = re.compile(r":([0-9]{1,5})(?:\b[^0-9]|$)")


def do_nothing() -> None:
    """End no wait."""


class ContainerStarter:
    """Starts the containers of apps."""

    def __init__(
        self,
        *,
        commands: ContainerCommands,
        passwords: Passwords,
        ports: Ports,
        readiness: Readiness,
    ) -> None:
        self._commands = commands
        self._engine = commands.engine
        self._passwords = passwords
        self._ports = ports
        self._readiness = readiness

    async def start(
        self,
        app: App,
        container_id: str,
        *,
        set_password: bool,
        requirement: Requirement = Requirement.START,
        overdue: Callable[[], None] = do_nothing,
    ) -> App:
        """Start the app's container, and set the app's password in it if it does not have it.

        ``overdue`` may raise to end a wait that takes longer than most apps need.

        Returns:
            The app as it is then.

        Raises:
            StartFailed: it does not start, or does not settle as ``requirement`` demands.
            PortInUse: one of its ports is held by another.
            NoSuchUser: its password cannot be set.

        """
        container = await self._engine.inspect(container_id)
        # The engine may have restarted a running container before; only later restarts count.
        restarts = container.restarts if container.state in STABLE_STATES else 0
        await self._start(app, container)
        password = app.password if set_password else None
        if password is not None:
            with suppress(EngineConflict):  # it ended at once; checked below
                await self._passwords.apply(container, password)
                password = None
        await self._readiness.wait(
            app, container_id, restarts=restarts, requirement=requirement, overdue=overdue
        )
        if password is not None:
            await self._passwords.apply(container, password)
        return msgspec.structs.replace(
            app,
            container_id=container_id,
            password_pending=False,
            failed=False,
            message=None,
            down=None,
        )

    async def start_again(self, app: App, container: Container) -> App:
        """Start an app's present container, and set a password that it does not have yet.

        Errors are raised as by ``start``, but none of the password, which keeps no app from
        running. Return the app as it is then.
        """
        started = await self.start(app, container.id, set_password=False)
        if not app.password_pending:
            return started
        pending = msgspec.structs.replace(started, password_pending=True)
        try:
            return await self._passwords.set_pending(pending, container)
        except NoSuchUser as error:
            return await self._passwords.drop(pending, container, error)

    async def _start(self, app: App, container: InspectedContainer) -> None:
        try:
            await self._commands.start(container)
        except HostPortInUse as error:
            raise await self._port_in_use(app, error) from error
        except NetworkNotFound as error:
            raise StartFailed(f"app `{app.name}` cannot be started: {error}") from error
        except (DiskFull, ObjectNotFound):
            raise
        except PortsNotPublished as error:
            raise StartFailed(
                f"app `{app.name}` cannot be started: {error}; restart the container engine, which"
                " makes the rules of its firewall anew"
            ) from error
        except EngineRefused as error:
            other = await wrong_cpu(self._engine, container.image_id)
            remedy = other or "change its `image` or `command`"
            raise StartFailed(f"app `{app.name}` cannot be started: {error}; {remedy}") from error

    async def _port_in_use(self, app: App, error: HostPortInUse) -> PortInUse:
        named = {int(number) for number in PORT_IN_ERROR.findall(str(error))}
        ports = [port for port in (app.ssh_port, app.http_port) if port in named]
        published = await self._ports.published()
        for port in ports:
            holder = self._ports.holder(app.name, port, published, None)
            if holder is not None:
                return port_in_use(app.name, port, holder)
        which = f"port {ports[0]}" if ports else "a port"
        fact = f"{which} of app `{app.name}` is held by another program"
        return PortInUse(fact if ports else f"{fact}: {error}", OTHER_PORT)


def port_in_use(app: str, port: int, holder: str) -> PortInUse:
    """Return the error that somebody else holds a port of an app that is to start."""
    return PortInUse(f"port {port} of app `{app}` is held by {holder}", OTHER_PORT)
