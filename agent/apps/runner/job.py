"""An operation that runs, as it is shown to others, and its part in the journal and in pulls."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent.apps.repository.repository import AppRepository
from agent.apps.requests import Request
from agent.engine.models import PullProgress
from agent.journal import EntryHeader, JournalEntry


@dataclass(frozen=True, kw_only=True)
class OperationStatus:
    """An operation that has not ended, and how far it is."""

    header: EntryHeader
    step: str = ""
    pull: PullProgress | None = None


class Job:
    """An operation that runs: what was asked for, None where one is recovered.

    ``repeated`` marks another attempt at one that failed before, and was logged then. With
    ``picked_ports_only`` the app may get only ports from which the agent picks. ``needed_image`` is
    not removed to make room for it.
    """

    def __init__(
        self,
        header: EntryHeader,
        repository: AppRepository,
        request: Request | None = None,
        *,
        repeated: bool = False,
        picked_ports_only: bool = False,
    ) -> None:
        self.header = header
        self.request = request
        self.repeated = repeated
        self.picked_ports_only = picked_ports_only
        self.needed_image: str | None = None
        self.committed = asyncio.Event()
        self.done = asyncio.Event()
        self._repository = repository
        self._step = ""
        self._pull: PullProgress | None = None
        self._puller: asyncio.Task[Any] | None = None
        self._pull_ended_by: Exception | None = None
        self._is_overdue = False
        self._asked_to_end = list[Exception]()
        self.task: asyncio.Task[None] | None = None
        self.is_draining = False
        self._drain_ended = asyncio.Event()
        self._drain_ended_by: Exception | None = None

    @property
    def app(self) -> str:
        """The app's name."""
        return self.header.app

    @property
    def status(self) -> OperationStatus:
        """How far it is."""
        return OperationStatus(header=self.header, step=self._step, pull=self._pull)

    async def commit(self, entry: JournalEntry) -> None:
        """Write the entry that the operation begins with.

        From then on it is done or undone in any case, so a request in the background is
        answered.
        """
        await self._repository.begin(entry)
        self.committed.set()

    def end_pull(self, reason: Exception) -> None:
        """Raise ``reason`` in the operation if it is pulling an image, or when it begins to."""
        if self._pull_ended_by is not None:
            return  # a second cancellation would look like one for another reason
        self._pull_ended_by = reason
        if self._puller is not None and self._pull is not None:
            self._puller.cancel()

    @property
    def can_be_ended(self) -> bool:
        """Whether it pulls an image, or has waited for long, and so ends when it is asked to."""
        return self._pull is not None or self._is_overdue

    @contextmanager
    def asked_to_end(self, reason: Exception) -> Iterator[None]:
        """While the context is open, raise ``reason`` where it pulls or has waited for long."""
        self.end_pull(reason)
        self._asked_to_end.append(reason)
        try:
            yield
        finally:
            self._asked_to_end.remove(reason)

    def end_if_asked(self) -> None:
        """Note that it has waited for long; raise the reason of whoever asks it to end."""
        self._is_overdue = True
        if self._asked_to_end:
            raise self._asked_to_end[0]

    def _reason_to_end(self) -> Exception | None:
        """Return why the pull was ended, None if the task was cancelled for another reason too."""
        if self._puller is None or self._pull_ended_by is None or self._puller.uncancel():
            return None
        return self._pull_ended_by

    def end_drain(self, reason: Exception | None = None) -> None:
        """End the wait before a stop, or raise ``reason`` in it; also if it has not begun yet."""
        self._drain_ended_by = reason
        self._drain_ended.set()

    async def drain(self, seconds: float) -> None:
        """Wait before a stop, until somebody ends the wait.

        Raises:
            AgentStopping: the agent ends it.

        """
        if seconds <= 0:
            return
        self._step, self.is_draining = "draining", True
        try:
            async with asyncio.timeout(seconds):
                await self._drain_ended.wait()
        except TimeoutError:
            return
        finally:
            self._step, self.is_draining = "", False
        if self._drain_ended_by is not None:
            raise self._drain_ended_by

    def is_same(self, request: Request) -> bool:
        """Return whether a request repeats it.

        The fields that an interrupted update was given are not known, so nothing repeats it.
        """
        if self.request is None:
            return self.header.operation == request.operation != "update"
        return self.request == request

    @contextmanager
    def pulling(self, step: str = "pulling") -> Iterator[Callable[[PullProgress], None]]:
        """Show that an image is being pulled; yield a function to call with the progress.

        It must be called at the beginning of a pull, and raises if that is to be ended. Another
        ``step`` that can be ended in this way is shown by its name.

        Raises:
            OperationCancelled, AgentStopping: the pull was ended.

        """

        def report(progress: PullProgress) -> None:
            if self._pull is None and self._pull_ended_by is not None:
                raise self._pull_ended_by
            self._pull = progress

        self._step, self._puller = step, asyncio.current_task()
        try:
            yield report
        except asyncio.CancelledError:
            reason = self._reason_to_end()
            if reason is None:
                raise
            raise reason from None
        finally:
            self._step, self._pull, self._puller = "", None, None
