"""Replacing an app's container by another, so that one of the two always remains."""

from contextlib import suppress

import msgspec

from agent.apps.containers import UP_STATES, Workbench
from agent.apps.errors import AppError
from agent.apps.operations.starter import ContainerStarter
from agent.engine.protocol import EngineError, EngineUnavailable, Image, NameInUse, ObjectNotFound
from agent.model import App, Change


class Replacement:
    """Makes the new container beside the old one, stops the old, starts the new.

    The journal says when the new one has taken over: up to there everything is undone if it breaks
    off, from there on everything is finished.
    """

    def __init__(self, bench: Workbench, starter: ContainerStarter) -> None:
        self._bench = bench
        self._starter = starter

    async def carry_out(self, change: Change, image: Image) -> None:
        """Replace the container of ``before`` by one made from ``target``.

        Raises:
            StartFailed, PortInUse, NoSuchUser, EngineError: the app is as it was, and runs if it
                did.
            EngineUnavailable: what happened is not known; it is settled when the engine is back.

        """
        try:
            change = await self._swap(change, image)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            await self.undo(change, error)
            raise
        await self.clean_up(change)

    async def _swap(self, change: Change, image: Image) -> Change:
        bench, target = self._bench, change.target
        assert target is not None
        # An app's own name has no capital letters, so this is nobody else's.
        new = await bench.make(change, image, name=f"{change.app}.NEXT-{change.id[:8]}")
        target = msgspec.structs.replace(target, container_id=new)
        old = await bench.current(change.before) if change.before else None
        if old is not None and old.state in UP_STATES:  # somebody may have started a stopped app
            await bench.stop(old)
        if target.desired == "running":
            target = await self._starter.start(target, new, password=True)
        else:
            target = msgspec.structs.replace(
                target, password_pending=target.password is not None, failed=False, message=None
            )
        return await bench.repository.advance(
            msgspec.structs.replace(change, target=target, swapped=True)
        )

    async def clean_up(self, change: Change) -> None:
        """Remove the old container, and give the new one its name.

        An old one that the engine fails to remove is left to the sweep: the app needs it no more.
        """
        left = None
        bench, before, target = self._bench, change.before, change.target
        assert target is not None
        assert target.container_id is not None
        if before is not None and before.container_id not in (None, target.container_id):
            assert before.container_id is not None
            left = await bench.remove_or_leave(before.container_id)
        try:
            with suppress(ObjectNotFound):
                await bench.engine.rename(target.container_id, change.app)
        except NameInUse:
            bench.log.warning("name held by another container", app=change.app)
        await bench.repository.finish(change, target, undone=left)

    async def undo(self, change: Change, error: Exception) -> None:
        """Go back to the container from before, and let it run if it did.

        A new one that the engine fails to remove does not keep the app from that.
        """
        bench, before = self._bench, change.before
        assert before is not None
        await bench.discard_or_leave(change)
        message = str(error)
        if change.was_running:
            message = await self._restart(before, message)
        kept = msgspec.structs.replace(before, message=message)
        await bench.repository.finish(change, kept, undone=change.id)

    async def _restart(self, app: App, message: str) -> str:
        old = await self._bench.current(app)
        if old is None or old.state in UP_STATES:
            return message
        try:
            await self._starter.start(app, old.id, password=False)
        except EngineUnavailable:
            raise
        except (AppError, EngineError) as error:
            return f"{message}; and back as it was: {error}"
        return message

    async def recover(self, change: Change) -> None:
        """End a replacement that broke off."""
        if change.swapped:
            await self.clean_up(change)
        else:
            await self.undo(change, EngineUnavailable(f"the {change.operation} broke off"))
