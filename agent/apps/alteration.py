"""Updating and rebuilding an app."""

from contextlib import suppress

import msgspec

from agent.apps.errors import MemoryInUse
from agent.apps.replacement import Replacement
from agent.apps.spec import AppChanges, check_changes, check_fits
from agent.apps.turns import Turn
from agent.apps.workbench import UP, Workbench
from agent.containers import (
    EngineError,
    EngineUnavailable,
    InspectedContainer,
    NotThere,
)
from agent.journal import App, Change

MIB = 1 << 20
LIVE = frozenset({"cpu", "memory"})


class Alteration:
    """Changes what was asked for: in the running container where the engine can."""

    def __init__(self, bench: Workbench, replacement: Replacement) -> None:
        self._bench = bench
        self._replacement = replacement

    async def update(self, turn: Turn, name: str, changes: AppChanges) -> None:
        """Change an app's fields.

        Raises:
            InvalidApp, PortInUse, MemoryInUse, ImageUnavailable, DiskFull, StartFailed: all is as
                it was.

        """
        bench, app = self._bench, self._bench.roster.get(name)
        check_changes(changes)
        wanted = {
            field: value
            for field, value in msgspec.structs.asdict(changes).items()
            if value is not msgspec.UNSET and value != getattr(app, field)
        }
        if not wanted:
            return
        target = msgspec.structs.replace(app, **wanted)
        host = await bench.engine.info()
        check_fits(target, host)
        container = await bench.current(app)
        if container is None:
            await self._check_ports(app, target, None)
            await bench.roster.put(target)  # it counts from the next start on
        elif wanted.keys() <= LIVE:
            await self._limit(turn, app, target, container)
        else:
            bench.room.check(host.root)
            await self._replace(turn, app, target, container, fresh=False)

    async def _limit(
        self, turn: Turn, app: App, target: App, container: InspectedContainer
    ) -> None:
        bench = self._bench
        if target.memory < app.memory and container.state in UP:
            await self._check_memory(target, container.id)
        change = await bench.roster.begin(bench.change(turn, before=app, target=target))
        turn.accepted.set()
        await self.settle_limits(change)

    async def _check_memory(self, target: App, container_id: str) -> None:
        sample = await self._bench.engine.sample(container_id, for_change=True)
        used = sample.memory_bytes if sample is not None else None
        if used is not None and used > target.memory * MIB:
            raise MemoryInUse(
                f"app `{target.name}` uses {used // MIB} MiB now and would be killed"
                f" with {target.memory} MiB; stop it first, or leave it more"
            )

    async def settle_limits(self, change: Change) -> None:
        """Give the container the limits of the target, or those from before if it refuses."""
        bench, before, target = self._bench, change.before, change.target
        assert before is not None
        assert target is not None
        assert before.container_id is not None
        try:
            with suppress(NotThere):
                await bench.engine.limit(before.container_id, cpu=target.cpu, memory=target.memory)
        except EngineUnavailable:
            raise
        except EngineError as error:
            await self._put_back(before, before.container_id)
            await bench.roster.finish(change, before)
            raise MemoryInUse(f"the limits cannot be changed at present: {error}") from error
        await bench.roster.finish(change, msgspec.structs.replace(target, message=None))

    async def _put_back(self, before: App, container_id: str) -> None:
        try:
            await self._bench.engine.limit(container_id, cpu=before.cpu, memory=before.memory)
        except EngineUnavailable:
            raise
        except EngineError as error:  # one that takes neither has kept what it had
            self._bench.log.debug("limits not put back", app=before.name, reason=str(error))

    async def _replace(
        self,
        turn: Turn,
        app: App,
        target: App,
        container: InspectedContainer | None,
        *,
        fresh: bool,
    ) -> None:
        bench = self._bench
        await self._check_ports(app, target, container.id if container is not None else None)
        change = await bench.roster.begin(
            bench.change(
                turn,
                before=app,
                target=target,
                was_running=container is not None and container.state in UP,
            )
        )
        turn.accepted.set()
        try:
            image = await bench.fetch(turn, target.image, fresh=fresh)
        except EngineUnavailable:
            raise
        except EngineError as error:
            await self._replacement.undo(change, error)
            raise
        await self._replacement.carry_out(change, image)

    async def _check_ports(self, app: App, target: App, own: str | None) -> None:
        published = await self._bench.ports.published()
        for port in sorted({target.ssh_port, target.http_port} - {app.ssh_port, app.http_port}):
            self._bench.ports.check(app.name, port, published, own)

    async def rebuild(self, turn: Turn, name: str) -> None:
        """Pull the app's image and replace its container.

        Raises:
            ImageUnavailable, DiskFull, StartFailed, PortInUse: all is as it was.

        """
        app = self._bench.roster.get(name)
        self._bench.room.check((await self._bench.engine.info()).root)
        container = await self._bench.current(app)
        await self._replace(turn, app, app, container, fresh=True)

    async def recreate(self, turn: Turn, app: App) -> None:
        """Give an app whose container is gone another one, that runs."""
        self._bench.room.check((await self._bench.engine.info()).root)
        target = msgspec.structs.replace(app, desired="running")
        await self._replace(turn, app, target, None, fresh=False)

    async def settle(self, change: Change) -> None:
        """End an update or rebuild that broke off."""
        live = change.before is not None and change.target is not None and _live_only(change)
        if live:
            await self.settle_limits(change)
        else:
            await self._replacement.settle(change)


def _live_only(change: Change) -> bool:
    before = msgspec.structs.asdict(change.before) if change.before else {}
    target = msgspec.structs.asdict(change.target) if change.target else {}
    differing = {field for field in target if target[field] != before.get(field)}
    return bool(differing) and differing <= LIVE
