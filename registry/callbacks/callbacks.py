"""All callbacks of the settings: begun, replaced at a reload, ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from random import SystemRandom

from registry.callbacks.receiver import Callback, CallbackUrl
from registry.callbacks.sender import (
    MAX_PAUSE_SECONDS,
    CallbackSender,
    ChangeBatches,
    Parts,
    Progress,
)
from registry.nodes.change_log import ChangeLog
from registry.nodes.context import RegistryContext
from runtime.pauses import Backoff


class Callbacks:
    """The senders, each of which is a task.

    Nothing calls it when a node changes: each sender looks for changes now and then, so that
    callbacks cost heartbeats nothing.
    """

    def __init__(
        self, context: RegistryContext, history: ChangeLog, is_ready: Callable[[], bool]
    ) -> None:
        self._parts = Parts(context, ChangeBatches(history), is_ready)
        self._senders: dict[str, CallbackSender] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[CallbackSender]:
        return iter(self._senders.values())

    @asynccontextmanager
    async def sending(self, callbacks: Iterable[Callback]) -> AsyncIterator[None]:
        """Send to these callbacks while the context is open.

        What was not sent by then is covered by the `resync` after the next start.
        """
        self.replace(callbacks)
        try:
            yield
        finally:
            for name in list(self._tasks):
                self._end(name)
            await asyncio.gather(*self._ended, return_exceptions=True)

    def replace(self, callbacks: Iterable[Callback]) -> None:
        """Have these callbacks from now on; those that are as they were go on undisturbed.

        With another key or CA, one goes on where it was; with other filters, by a `resync`.
        """
        wanted = {callback.name: callback for callback in callbacks}
        before = self._senders
        self._senders = {}
        for name, callback in wanted.items():
            known = before.pop(name, None)
            if known is not None and known.callback == callback:
                self._senders[name] = known
                continue
            self._end(name)
            self._begin(callback, known)
        for name in before:
            self._end(name)

    def _begin(self, callback: Callback, known: CallbackSender | None) -> None:
        progress = Progress() if known is None else known.progress
        if known is not None and known.callback.filters != callback.filters:
            known.require_resync("settings")
        receiver = CallbackUrl(callback, self._parts.context.clocks.wall)
        backoff = Backoff(max_seconds=MAX_PAUSE_SECONDS, random=SystemRandom())
        sender = CallbackSender(receiver, progress, backoff, self._parts)
        self._senders[callback.name] = sender
        self._tasks[callback.name] = asyncio.create_task(sender.run())

    def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)
