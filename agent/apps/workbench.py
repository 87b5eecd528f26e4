"""What every change of an app works with."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from structlog.typing import FilteringBoundLogger

from agent.apps.defaults import AppDefaults
from agent.apps.images import Images
from agent.apps.marks import AGENT, APP, CHANGE, plan
from agent.apps.passwords import Passwords
from agent.apps.ports import Ports
from agent.apps.room import Room
from agent.apps.roster import Roster
from agent.apps.spec import App, Change
from agent.apps.turns import Turn
from agent.containers import (
    Container,
    Engine,
    Image,
    InspectedContainer,
    NotThere,
    PullProgress,
)

UP = frozenset({"running", "restarting", "paused"})


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """The collaborators of changes, and the few things that all changes do alike."""

    engine: Engine
    roster: Roster
    images: Images
    passwords: Passwords
    ports: Ports
    room: Room
    defaults: AppDefaults
    clock: Callable[[], float]
    log: FilteringBoundLogger

    def change(self, turn: Turn, *, before: App | None, target: App | None, **more: Any) -> Change:
        """Describe a change for the journal; its id marks the container that it makes."""
        return Change(
            id=secrets.token_hex(8),
            app=turn.app,
            operation=turn.operation,
            by=turn.by,
            since=turn.since,
            before=before,
            target=target,
            promised=turn.promised,
            **more,
        )

    def now(self) -> str:
        """Give the time as records show it."""
        return datetime.fromtimestamp(self.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def current(self, app: App) -> InspectedContainer | None:
        """Look at the app's container, None when it is gone."""
        if app.container_id is not None:
            with suppress(NotThere):
                return await self.engine.inspect(app.container_id)
        return None

    async def fetch(self, turn: Turn, reference: str, *, fresh: bool) -> Image:
        """Have an image on this host, and show in the turn how far that is."""

        def tell(progress: PullProgress) -> None:
            turn.pull = progress

        turn.step = "pulling"
        try:
            return await self.images.fetch(reference, fresh=fresh, progress=tell)
        finally:
            turn.step, turn.pull = "", None

    async def make(self, change: Change, image: Image, *, name: str) -> str:
        """Make the container of the change's target, beside any other that the app has."""
        assert change.target is not None
        planned = plan(
            change.target,
            change,
            name=name,
            image=image,
            host=await self.engine.info(),
            agent=self.roster.agent,
            defaults=self.defaults,
        )
        return await self.engine.create(planned)

    async def made_by(self, change: Change) -> list[Container]:
        """List the containers that the change made, if it came so far."""
        theirs = await self.engine.containers(label=f"{APP}={change.app}")
        return [
            each
            for each in theirs
            if each.labels.get(CHANGE) == change.id and each.labels.get(AGENT) == self.roster.agent
        ]

    async def discard_made_by(self, change: Change) -> None:
        """Remove what the change made."""
        for container in await self.made_by(change):
            await self.remove(container.id)

    async def remove(self, container_id: str) -> None:
        """Remove a container of ours; fine if it is gone."""
        with suppress(NotThere):
            await self.engine.remove(container_id)

    async def stop(self, container: Container) -> None:
        """Stop a container in the time that apps have to end; fine if it is gone."""
        with suppress(NotThere):
            if container.state == "paused":
                await self.engine.unpause(container.id)
            await self.engine.stop(container.id, self.defaults.stop_seconds)
