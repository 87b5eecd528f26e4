"""Starting a container, and finding out whether it stays up."""

import asyncio
import re
import time
from contextlib import aclosing, suppress

import msgspec

from agent.apps.errors import PortInUse, StartFailed
from agent.apps.passwords import Passwords
from agent.apps.ports import Ports
from agent.engine.protocol import (
    DiskFull,
    Engine,
    EngineConflict,
    EngineError,
    EngineRefused,
    HostPortInUse,
    InspectedContainer,
    ObjectNotFound,
)
from agent.model import App

LOG_TAIL_LINES = 20
LOG_TAIL_BYTES = 2048
POLL_SECONDS = 0.1
EXIT_WAIT_SECONDS = 3.0
STABLE_STATES = frozenset({"running", "paused"})
PORT_IN_ERROR = re.compile(r":([0-9]{1,5})(?:\b[^0-9]|$)")


class ContainerStarter:
    """Starts the containers of apps. One counts as started when it stays up ``settle_seconds``."""

    def __init__(
        self, *, engine: Engine, passwords: Passwords, ports: Ports, settle_seconds: float
    ) -> None:
        self._engine = engine
        self._passwords = passwords
        self._ports = ports
        self._settle_seconds = settle_seconds

    async def start(self, app: App, container_id: str, *, set_password: bool) -> App:
        """Start the app's container, and set the app's password in it if it does not have it.

        Returns:
            The app as it is then.

        Raises:
            StartFailed: it does not start or does not stay up; with its exit code and last lines.
            PortInUse: one of its ports is held by another.
            NoSuchUser: its password cannot be set.

        """
        container = await self._engine.inspect(container_id)
        # One that runs already may have been restarted by the engine before: that is its past.
        restarts = container.restarts if container.state in STABLE_STATES else 0
        await self._start(app, container_id)
        password = app.password if set_password else None
        if password is not None:
            with suppress(EngineConflict):  # it ended at once, which is found out below
                await self._passwords.apply(container, password)
                password = None
        await self._wait_until_stable(app, container_id, restarts)
        if password is not None:
            await self._passwords.apply(container, password)
        return msgspec.structs.replace(
            app, container_id=container_id, password_pending=False, failed=False, message=None
        )

    async def _start(self, app: App, container_id: str) -> None:
        try:
            await self._engine.start(container_id)
        except HostPortInUse as error:
            raise await self._port_in_use(app, error) from error
        except (DiskFull, ObjectNotFound):
            raise
        except EngineRefused as error:
            raise StartFailed(f"app `{app.name}` cannot be started: {error}") from error

    async def _port_in_use(self, app: App, error: HostPortInUse) -> PortInUse:
        named = {int(number) for number in PORT_IN_ERROR.findall(str(error))}
        ports = [port for port in (app.ssh_port, app.http_port) if port in named]
        published = await self._ports.published()
        for port in ports:
            holder = self._ports.holder(app.name, port, published, None)
            if holder is not None:
                return PortInUse(f"port {port} of app `{app.name}` is held by {holder}")
        which = f"port {ports[0]}" if ports else "a port"
        return PortInUse(f"{which} of app `{app.name}` is held by another: {error}")

    async def _wait_until_stable(self, app: App, container_id: str, restarts: int) -> None:
        deadline = time.monotonic() + self._settle_seconds
        while True:
            container = await self._engine.inspect(container_id)
            if container.state not in STABLE_STATES or container.restarts > restarts:
                raise await self._failure(app, container)
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _failure(self, app: App, container: InspectedContainer) -> StartFailed:
        ended = await self._wait_for_exit_code(container)
        reason = f"app `{app.name}` does not stay up: it ended with exit code {ended.exit_code}"
        if ended.oom_killed:
            reason += f", for want of memory (it has {app.memory} MiB)"
        return StartFailed(reason, output=await self._last_lines(ended.id))

    async def _wait_for_exit_code(self, container: InspectedContainer) -> InspectedContainer:
        # While the engine has it started once more, there is no exit code.
        deadline = time.monotonic() + EXIT_WAIT_SECONDS
        while container.exit_code is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS / 2)
            container = await self._engine.inspect(container.id)
        return container

    async def _last_lines(self, container_id: str) -> str:
        kept = b""
        logs = self._engine.logs(container_id, tail=LOG_TAIL_LINES, since=None, follow=False)
        with suppress(EngineError):
            async with aclosing(logs):
                async for chunk in logs:
                    kept = (kept + chunk)[-LOG_TAIL_BYTES:]
        return kept.decode("utf-8", "replace").strip()
