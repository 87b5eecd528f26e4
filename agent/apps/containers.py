"""What every change of an app works with."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.container_spec import (
    AGENT_LABEL,
    APP_LABEL,
    CHANGE_LABEL,
    build_container_spec,
    check_image_labels,
    own_volume_labels,
    volume_name,
)
from agent.apps.defaults import AppDefaults
from agent.apps.disk import DiskGuard
from agent.apps.errors import NameTaken
from agent.apps.images import Images
from agent.apps.operations.runner import RunningOperation
from agent.apps.passwords import Passwords
from agent.apps.ports import Ports
from agent.apps.repository import AppRepository
from agent.engine.protocol import (
    Container,
    Engine,
    EngineConflict,
    EngineError,
    EngineUnavailable,
    Image,
    InspectedContainer,
    ObjectNotFound,
    PullProgress,
)
from agent.model import App, Change

UP_STATES = frozenset({"running", "restarting", "paused"})
# The engine is removing it, or failed to: nothing but that can be done with it.
GONE_STATES = frozenset({"removing", "dead"})


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """The collaborators of changes, and the few things that all changes do alike."""

    engine: Engine
    repository: AppRepository
    images: Images
    passwords: Passwords
    ports: Ports
    disk_guard: DiskGuard
    defaults: AppDefaults
    clock: Callable[[], float]
    log: FilteringBoundLogger

    def change(
        self, job: RunningOperation, *, before: App | None, target: App | None, **more: Any
    ) -> Change:
        """Describe a change for the journal; its id marks the container that it makes."""
        return Change(
            id=secrets.token_hex(8),
            app=job.app,
            operation=job.operation,
            by=job.by,
            since=job.since,
            before=before,
            target=target,
            promised=job.promised,
            **more,
        )

    def now(self) -> str:
        """Give the time as records show it."""
        return datetime.fromtimestamp(self.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def current(self, app: App) -> InspectedContainer | None:
        """Look at the app's container, None when it is gone, or as good as gone."""
        if app.container_id is not None:
            with suppress(ObjectNotFound):
                seen = await self.engine.inspect(app.container_id)
                return seen if seen.state not in GONE_STATES else None
        return None

    async def fetch(self, job: RunningOperation, reference: str, *, must_pull: bool) -> Image:
        """Have an image on this host, and show in the turn how far that is."""

        def report(progress: PullProgress) -> None:
            job.pull = progress

        job.step = "pulling"
        try:
            return await self.images.fetch(reference, must_pull=must_pull, progress=report)
        finally:
            job.step, job.pull = "", None

    async def make(self, change: Change, image: Image, *, name: str) -> str:
        """Make the container of the change's target, beside any other that the app has.

        Its volume is made first: one that the engine makes by itself would not be known as ours.

        Raises:
            NameTaken: there is a volume of that name that is not ours.
            UnfitImage: no container of ours is to be made of that image.

        """
        assert change.target is not None
        check_image_labels(image, change.target.image)
        await self._have_volume(change)
        spec = build_container_spec(
            change.target,
            change,
            name=name,
            image=image,
            host=await self.engine.info(),
            agent=self.repository.agent,
            defaults=self.defaults,
        )
        return await self.engine.create(spec)

    async def _have_volume(self, change: Change) -> None:
        name = volume_name(change.app)
        labels = await self.engine.volume_labels(name)
        if labels is None:
            await self.repository.advance(msgspec.structs.replace(change, new_volume=True))
            await self.engine.create_volume(name, own_volume_labels(change.app))
        elif labels.get(APP_LABEL) != change.app:
            raise NameTaken(f"there is a volume `{name}` that is not the agent's; rename it")

    async def remove_volume(self, app: str) -> None:
        """Remove the app's volume, if there is one and it is ours."""
        name = volume_name(app)
        labels = await self.engine.volume_labels(name)
        if labels is not None and labels.get(APP_LABEL) == app:
            await self.engine.remove_volume(name)

    async def made_by(self, change: Change) -> list[Container]:
        """List the containers that the change made, if it came so far."""
        theirs = await self.engine.containers(label=f"{APP_LABEL}={change.app}")
        return [
            each
            for each in theirs
            if each.labels.get(CHANGE_LABEL) == change.id
            and each.labels.get(AGENT_LABEL) == self.repository.agent
        ]

    async def discard_made_by(self, change: Change) -> None:
        """Remove the containers that the change made."""
        for container in await self.made_by(change):
            await self.remove(container.id)

    async def discard(self, change: Change) -> None:
        """Remove all that the change made, its volume too if there was none before.

        A volume that somebody took meanwhile stays: the next app of that name finds it.
        """
        await self.discard_made_by(change)
        noted = self.repository.change(change.app)
        if noted is not None and noted.id == change.id and noted.new_volume:
            try:
                await self.remove_volume(change.app)
            except EngineConflict as error:
                self.log.warning("new volume left alone", app=change.app, reason=str(error))

    async def discard_or_leave(self, change: Change) -> None:
        """Remove all that the change made; what the engine fails to remove is at least stopped."""
        try:
            await self.discard(change)
        except EngineUnavailable:
            raise
        except EngineError as error:
            self.log.warning("container not removed yet", app=change.app, reason=str(error))
            for container in await self.made_by(change):
                await self.stop(container)

    def is_orphan(self, container: Container) -> bool:
        """Tell whether a container is nobody's by our own word, whichever database made it."""
        return self.repository.undone(container.labels.get(CHANGE_LABEL, ""))

    async def remove(self, container_id: str) -> None:
        """Remove a container of ours; fine if it is gone."""
        with suppress(ObjectNotFound):
            await self.engine.remove(container_id)

    async def remove_or_leave(self, container_id: str) -> str | None:
        """Remove a container of ours; None, or the change that made it if it is only stopped."""
        try:
            await self.remove(container_id)
        except EngineUnavailable:
            raise
        except EngineError as error:
            with suppress(ObjectNotFound):
                left = await self.engine.inspect(container_id)
                name = left.labels.get(APP_LABEL)
                self.log.warning("container not removed yet", app=name, reason=str(error))
                await self.stop(left)
                return left.labels.get(CHANGE_LABEL)
        return None

    async def stop(self, container: Container) -> None:
        """Stop a container, paused or not, in the time that apps have; fine if it is gone."""
        with suppress(ObjectNotFound):
            await self.engine.stop(container.id, self.defaults.stop_seconds)
