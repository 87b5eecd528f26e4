"""Starting a container, and finding out whether it stays up."""

import asyncio
import re
import time
from contextlib import aclosing, suppress

import msgspec

from agent.apps.containers import Workbench
from agent.apps.errors import PortInUse, StartFailed
from agent.engine.protocol import (
    DiskFull,
    EngineConflict,
    EngineError,
    EngineUnavailable,
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
    """Starts the containers of apps."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    async def start(self, app: App, container_id: str, *, password: bool) -> App:
        """Start the app's container; the app comes back as it is then.

        ``password`` says that the container does not have the app's password yet.

        Raises:
            StartFailed: it does not start or does not stay up; with its exit code and last lines.
            PortInUse: somebody took one of its ports.
            NoSuchUser: its password cannot be set.

        """
        await self._start(app, container_id)
        container = await self._bench.engine.inspect(container_id)
        missing = app.password if password else None
        if missing is not None:
            with suppress(EngineConflict):  # it ended at once, which is found out below
                await self._bench.passwords.apply(container, missing)
                missing = None
        await self._wait_until_stable(app, container_id)
        if missing is not None:
            await self._bench.passwords.apply(container, missing)
        return msgspec.structs.replace(
            app, container_id=container_id, password_pending=False, failed=False, message=None
        )

    async def _start(self, app: App, container_id: str) -> None:
        try:
            await self._bench.engine.start(container_id)
        except HostPortInUse as error:
            raise await self._port_in_use(app, error) from error
        except (EngineUnavailable, DiskFull, ObjectNotFound):
            raise
        except EngineError as error:
            raise StartFailed(f"app `{app.name}` cannot be started: {error}") from error

    async def _port_in_use(self, app: App, error: HostPortInUse) -> PortInUse:
        said = {int(number) for number in PORT_IN_ERROR.findall(str(error))}
        ports = [port for port in (app.ssh_port, app.http_port) if port in said]
        published = await self._bench.ports.published()
        for port in ports:
            holder = self._bench.ports.holder(app.name, port, published, None)
            if holder is not None:
                return PortInUse(f"port {port} of app `{app.name}` is held by {holder}")
        which = f"port {ports[0]}" if ports else "a port"
        return PortInUse(f"{which} of app `{app.name}` is held by another: {error}")

    async def _wait_until_stable(self, app: App, container_id: str) -> None:
        deadline = time.monotonic() + self._bench.defaults.settle_seconds
        while True:
            seen = await self._bench.engine.inspect(container_id)
            if seen.state not in STABLE_STATES or seen.restarts:
                raise await self._failure(app, seen)
            if time.monotonic() >= deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _failure(self, app: App, seen: InspectedContainer) -> StartFailed:
        seen = await self._ended(seen)
        why = f"app `{app.name}` does not stay up: it ended with exit code {seen.exit_code}"
        if seen.oom_killed:
            why += f", for want of memory (it has {app.memory} MiB)"
        return StartFailed(why, said=await self._last_lines(seen.id))

    async def _ended(self, seen: InspectedContainer) -> InspectedContainer:
        # The engine may have started it once more, and then knows no exit code until it has ended.
        deadline = time.monotonic() + EXIT_WAIT_SECONDS
        while seen.exit_code is None and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS / 2)
            seen = await self._bench.engine.inspect(seen.id)
        return seen

    async def _last_lines(self, container_id: str) -> str:
        kept = b""
        logs = self._bench.engine.logs(container_id, tail=LOG_TAIL_LINES, since=None, follow=False)
        with suppress(EngineError):
            async with aclosing(logs):
                async for chunk in logs:
                    kept = (kept + chunk)[-LOG_TAIL_BYTES:]
        return kept.decode("utf-8", "replace").strip()
