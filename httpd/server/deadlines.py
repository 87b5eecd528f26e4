"""The time limits of one connection."""

import asyncio
from collections.abc import Callable

from httpd.server.limits import TURNS_TO_BEGIN, Timeouts

# When the time for a head ends, bytes that have arrived are read first, and their request begins:
# the loop may have stood still. One more than that takes, for bytes that came after the last read.
LAST_TURNS = TURNS_TO_BEGIN + 1


class Deadlines:
    """Calls `on_late` if a request's head does not come in time, with the reason.

    Calls `on_stalled` if the client takes nothing of an answer for too long.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        *,
        on_late: Callable[[str], None],
        on_stalled: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._timeouts = timeouts
        self._on_late = on_late
        self._on_stalled = on_stalled
        self._loop = loop
        self._head_timer: asyncio.Handle | None = None
        self._writer_timer: asyncio.TimerHandle | None = None

    def expect_head(self, since: float, reason: str) -> None:
        """Start the time for a head at `since`, unless it runs already."""
        if self._head_timer is None:
            due = since + self._timeouts.header
            self._head_timer = self._loop.call_at(due, self._end_head, reason, LAST_TURNS)

    def head_arrived(self) -> None:
        """Stop the time for a head."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this later, instead of waiting for a head."""
        self.head_arrived()
        self._head_timer = self._loop.call_later(seconds, call)

    def watch_writing(self, transport: asyncio.WriteTransport) -> None:
        """Watch from now on whether the client takes anything."""
        self.stop_watching()
        self._check_writing(transport, last_pending=None)

    def stop_watching(self) -> None:
        """Stop watching whether the client takes anything."""
        if self._writer_timer is not None:
            self._writer_timer.cancel()
            self._writer_timer = None

    def cancel(self) -> None:
        """Stop all timers."""
        self.head_arrived()
        self.stop_watching()

    def _end_head(self, reason: str, turns: int) -> None:
        """Call `on_late` after so many turns of the loop, unless the head has arrived by then."""
        if turns:
            self._head_timer = self._loop.call_soon(self._end_head, reason, turns - 1)
        else:
            self._on_late(reason)

    def _check_writing(self, transport: asyncio.WriteTransport, last_pending: int | None) -> None:
        pending = transport.get_write_buffer_size()
        if pending == last_pending:
            self._on_stalled()
            return
        self._writer_timer = self._loop.call_later(
            self._timeouts.stall, self._check_writing, transport, pending
        )
