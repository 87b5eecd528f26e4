"""Copies of stores that a test follows, and cuts off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Literal

from registry.store.copying import copy
from registry.store.protocol import CopyBackend, CopySource, CopyTarget, Snapshot, StoreName

LOOK_SECONDS = 0.05


class Copy:
    """A copy that has begun. It ends by itself once nothing uses the source."""

    def __init__(self, source: CopyBackend, target: CopyBackend) -> None:
        self.told: list[str] = []
        self._follows = asyncio.Event()
        self._task = asyncio.create_task(
            copy(source, target, self._tell, unused_seconds=0, look_seconds=LOOK_SECONDS)
        )

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self._follows.set()

    async def follows(self) -> None:
        """Wait until all was copied that there was, and changes are followed."""
        waiting = asyncio.create_task(self._follows.wait())
        await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        assert self._follows.is_set(), self._task.result()

    async def is_running_after(self, seconds: float) -> bool:
        """Return whether it neither ends nor follows changes for so long."""
        await asyncio.wait([self._task], timeout=seconds)
        return not self._task.done() and not self._follows.is_set()

    async def cancel(self) -> None:
        """End it before its end."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def ended(self) -> int:
        """Wait for its end; return how many nodes it has copied. Raises StoreOpenError."""
        return await self._task

    @classmethod
    async def of(cls, source: CopyBackend, target: CopyBackend) -> int:
        """Copy; return how many nodes. Raises StoreOpenError."""
        return await cls(source, target).ended()


class CutOff:
    """A backend whose copy is cut off: where all is written, or before that."""

    class Error(Exception):
        """It was cut off."""

    def __init__(
        self, backend: CopyBackend, *, at: Literal["write", "complete"] = "complete"
    ) -> None:
        self._backend = backend
        self._at = at

    def __str__(self) -> str:
        return str(self._backend)

    def copy_source(self) -> AbstractAsyncContextManager[CopySource]:
        return self._backend.copy_source()

    def copy_target(
        self, source: StoreName, *, resume: bool
    ) -> AbstractAsyncContextManager[CopyTarget]:
        return self._cut_off(source, resume=resume)

    @asynccontextmanager
    async def _cut_off(self, source: StoreName, *, resume: bool) -> AsyncIterator[CopyTarget]:
        async with self._backend.copy_target(source, resume=resume) as target:
            yield _CutOffTarget(target, self._at)


class _CutOffTarget:
    def __init__(self, target: CopyTarget, at: str) -> None:
        self.name = target.name
        self._target = target
        self._at = at

    async def write(self, snapshot: Snapshot, *, final: bool) -> None:
        if self._at == "write":
            raise CutOff.Error
        await self._target.write(snapshot, final=final)

    async def complete(self, _snapshot: Snapshot) -> None:
        raise CutOff.Error


def ignore_text(_text: str) -> None:
    """Say nothing."""
