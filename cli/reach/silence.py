"""Finds out that an agent does not answer any more, while a change of an app runs."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from cli.errors import NotReached
from clients.errors import AgentError, AgentRefused

if TYPE_CHECKING:
    from clients.agent import AgentClient


# A change may take as long as a pull. The agent tells meanwhile that it lives, without its engine.
TIMEOUTS = 6
LOOK_SECONDS = 2

T = TypeVar("T")


class Silent(NotReached):
    """An agent has not answered anything for too long."""


class SilenceWatch:
    """Watches an agent while it is changed.

    ``look`` asks it something, and returns whether it has answered; ``told`` is called once it has
    not answered for ``timeout_seconds``. It is given up after ``timeouts`` times as long.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[bool]],
        *,
        timeout_seconds: float,
        told: Callable[[float], None],
        timeouts: int = TIMEOUTS,
    ) -> None:
        self._look = look
        self._timeout_seconds = timeout_seconds
        self._told = told
        self._timeouts = timeouts
        self._heard = time.monotonic()
        self._is_told = False

    @property
    def limit_seconds(self) -> float:
        """Return how long an agent may be silent."""
        return self._timeouts * self._timeout_seconds

    @property
    def is_silent(self) -> bool:
        """Return whether the agent has not answered for as long as an answer may take."""
        return self._silent_seconds > self._timeout_seconds

    async def result(self, change: Awaitable[T]) -> T:
        """Return what a change is answered with; Silent, while what was begun goes on."""
        changing = asyncio.ensure_future(change)
        watching = asyncio.ensure_future(self._until_silent())
        try:
            await asyncio.wait((changing, watching), return_when=asyncio.FIRST_COMPLETED)
            if changing.done():
                return changing.result()
        finally:
            changing.cancel()
            watching.cancel()
            await asyncio.gather(changing, watching, return_exceptions=True)
        raise Silent(
            f"its agent has not answered for {self.limit_seconds:g} s; what it does goes on"
        )

    @property
    def _silent_seconds(self) -> float:
        return time.monotonic() - self._heard

    async def _until_silent(self) -> None:
        pause = min(LOOK_SECONDS, self._timeout_seconds)
        looking: asyncio.Future[bool] | None = None
        try:
            while self._silent_seconds < self.limit_seconds:
                if looking is None:
                    await asyncio.sleep(pause)
                    looking = asyncio.ensure_future(self._look())
                await asyncio.wait([looking], timeout=pause)
                if looking.done():
                    self._note(has_answered=looking.result())
                    looking = None
                elif self.is_silent:
                    self._note(has_answered=False)
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    def _note(self, *, has_answered: bool) -> None:
        if has_answered:
            self._heard, self._is_told = time.monotonic(), False
        elif self.is_silent and not self._is_told:
            self._is_told = True
            self._told(self.limit_seconds)


async def lives(agent: "AgentClient") -> bool:
    """Return whether an agent answers."""
    try:
        await agent.health()
    except AgentError as error:
        return isinstance(error, AgentRefused)
    return True


def telling(note: Callable[[str], None], host: str) -> Callable[[float], None]:
    """Return what tells people that the agent of a host does not answer."""
    return lambda limit: note(
        f"{host}: its agent does not answer; it is left after {limit:g} s without an answer"
    )
