"""Carries a rollout out: batch by batch, with a check of each host, until too many have failed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from cli.rollout.model import Cause, HostProgress, HostState, Rollout


class HostFailed(Exception):
    """The change or the check of a host failed; the text says why.

    ``cause`` is what another attempt would have to change, if anybody knows.
    """

    def __init__(self, message: str, *, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class NotBegun(HostFailed):
    """The change of a host failed before the agent can have heard of it."""


class Runner:
    """Runs one rollout.

    ``change`` changes the app of a host, and waits for the answer; NotBegun if its agent was not
    asked. ``check`` waits until the app is well. Both raise HostFailed.
    ``changed`` is called after each change of a host's state, and may write it down. ``sleep``
    waits between batches.
    """

    def __init__(
        self,
        rollout: Rollout,
        *,
        change: Callable[[HostProgress], Awaitable[None]],
        check: Callable[[HostProgress], Awaitable[None]],
        changed: Callable[[HostProgress], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rollout = rollout
        self._change = change
        self._check = check
        self._changed = changed
        self._sleep = sleep
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Begin no other batch; the present one goes on to its end."""
        self._stop.set()

    async def run(self) -> None:
        """Run the rollout until each host is changed, too many have failed, or it is stopped."""
        batches = self._batches()
        for number, batch in enumerate(batches):
            if number > 0 and not self._is_over:
                await self._pause()
            if self._is_over:
                return
            await asyncio.gather(*(self._one(each) for each in batch))

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or self._rollout.failures > self._rollout.bounds.max_failures

    def _batches(self) -> list[Sequence[HostProgress]]:
        waiting = [each for each in self._rollout.hosts if each.state == "waiting"]
        size = self._rollout.bounds.batch
        return [waiting[start : start + size] for start in range(0, len(waiting), size)]

    async def _pause(self) -> None:
        """Wait between batches, unless it is stopped."""
        stopped = asyncio.ensure_future(self._stop.wait())
        pause = asyncio.ensure_future(self._sleep(self._rollout.bounds.pause_seconds))
        _, left = await asyncio.wait((stopped, pause), return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()

    async def _one(self, host: HostProgress) -> None:
        was_touched, was = host.is_touched, host.now
        # So it is kept: whoever ends this command at once does not know what became of the host.
        host.is_touched, host.now = True, None
        try:
            self._set(host, "changing")
            await self._change(host)
            self._set(host, "checking")
            await self._check(host)
        except HostFailed as error:
            if isinstance(error, NotBegun):
                host.is_touched, host.now = was_touched, was
            host.failed_at = "change" if host.state == "changing" else "check"
            host.cause, host.message = error.cause, str(error)
            self._set(host, "failed")
        else:
            self._set(host, "done")

    def _set(self, host: HostProgress, state: HostState) -> None:
        host.state = state
        self._changed(host)
