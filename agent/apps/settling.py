"""Ending changes that broke off, because the agent or the engine went away under them."""

from collections.abc import Collection, Mapping
from contextlib import suppress

from structlog.typing import FilteringBoundLogger

from agent.apps.adoption import Adoption
from agent.apps.alteration import Alteration
from agent.apps.belongings import Belongings
from agent.apps.creation import Creation
from agent.apps.lifecycle import Lifecycle
from agent.apps.marks import AGENT, APP
from agent.apps.turns import Turn, Turns
from agent.apps.workbench import UP, Workbench
from agent.containers import Container, EngineError, EngineUnavailable, NameInUse, NotThere
from agent.journal import Change


class Settling:
    """Finishes or undoes each row that is left in the journal, and removes what nobody needs."""

    def __init__(
        self,
        *,
        bench: Workbench,
        turns: Turns,
        creation: Creation,
        alteration: Alteration,
        lifecycle: Lifecycle,
        belongings: Belongings,
        adoption: Adoption,
    ) -> None:
        self._bench = bench
        self._turns = turns
        self._creation = creation
        self._alteration = alteration
        self._lifecycle = lifecycle
        self._belongings = belongings
        self._adoption = adoption
        self._told: set[str] = set()

    async def settle(self, turn: Turn, change: Change) -> None:
        """End one change that broke off."""
        log = self._bench.log
        (log.debug if turn.repeated else log.warning)(
            "settling a change that broke off", app=change.app, operation=change.operation
        )
        match change.operation:
            case "create":
                await self._creation.settle(turn, change)
            case "update" | "rebuild":
                await self._alteration.settle(change)
            case "start":
                await self._settle_start(change)
            case "stop":
                await self._lifecycle.settle_stop(change)
            case "delete":
                await self._lifecycle.settle_delete(change)
            case _:  # a label is added in one step, and leaves no row
                await self._belongings.settle_password(change)

    async def _settle_start(self, change: Change) -> None:
        # The start of an app without a container is a replacement of none by one.
        replaces = change.before is not None and change.before.container_id is None
        if replaces or change.swapped or await self._bench.made_by(change):
            await self._alteration.settle(change)
        else:
            await self._lifecycle.settle_start(change)

    async def rename(self, containers: Mapping[str, Container]) -> None:
        """Give containers their apps' names, where a foreign one held the name at first."""
        for app in self._bench.roster.existing():
            container = containers.get(app.container_id or "")
            idle = self._turns.current(app.name) is None
            if container is not None and idle and container.name.startswith(f"{app.name}.NEXT-"):
                with suppress(NameInUse, NotThere):
                    await self._bench.engine.rename(container.id, app.name)

    async def sweep(self) -> None:
        """Remove containers that a change left which was taken back.

        Such a one is left when the engine does what it was asked to after we gave up on it. What
        else belongs to no app is taken back by its app, or left alone: it may be somebody's copy,
        or the database an old one.
        """
        listed = await self._bench.engine.containers(label=APP)
        here = {container.id for container in listed}
        for container in listed:
            ours = container.labels.get(AGENT) == self._bench.roster.agent
            if self._is_stray(container) and (ours or self._bench.is_waste(container)):
                await self._sweep(container, here)

    def _is_stray(self, container: Container) -> bool:
        name = container.labels[APP]
        app = self._bench.roster.find(name)
        busy = self._turns.current(name) is not None or self._bench.roster.change(name) is not None
        return not busy and (app is None or app.container_id != container.id)

    async def _sweep(self, container: Container, here: Collection[str]) -> None:
        log = self._bench.log.bind(app=container.labels[APP], container=container.name)
        if self._bench.is_waste(container):
            if container.state not in UP:
                await self._remove(container, log)
        elif not await self._adoption.take_back(container, here) and container.id not in self._told:
            self._told.add(container.id)
            log.warning("container of no app left alone")

    async def _remove(self, container: Container, log: FilteringBoundLogger) -> None:
        try:
            await self._bench.remove(container.id)
        except EngineUnavailable:
            raise
        except EngineError as error:  # nothing else is to suffer from it
            if container.id not in self._told:
                self._told.add(container.id)
                log.warning("container not removed", reason=str(error))
        else:
            log.warning("container removed that a broken off change left")

    async def start(self, turn: Turn, name: str) -> None:
        """Start an app that went down with the engine."""
        await self._lifecycle.start(turn, name)

    async def supply_password(self, name: str) -> None:
        """Set the password of an app that somebody else started."""
        await self._belongings.supply_password(name)

    async def adopt(self) -> None:
        """Read apps back from their containers, where the database is new."""
        if not self._bench.roster.adopted:
            await self._adoption.adopt()
