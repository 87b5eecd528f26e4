"""The agent's calls that change containers, and the events of the engine that they cause."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from agent.engine.errors import EngineRejected

# The engine may log the end or a pause of a container just after it has answered. It logs a start
# before it answers; a restart of the container may follow at once.
GRACE_SECONDS = 1.0
# A call without an answer may still run.
UNANSWERED_SECONDS = 30.0
# An event may be read this long after the call, as after a lost connection.
KEPT_SECONDS = 600.0
START = frozenset({"start"})
# To stop a paused container, the engine lets it go on.
STOP = frozenset({"kill", "die", "stop", "unpause"})
REMOVE = STOP | {"destroy"}
PAUSE = frozenset({"pause"})
UNPAUSE = frozenset({"unpause"})
UPDATE = frozenset({"update"})


@dataclass(kw_only=True)
class _Call:
    """A call about a container, which causes these events between two Unix times."""

    container_id: str
    actions: frozenset[str]
    began: float
    ended: float = inf


class OwnCalls:
    """The latest calls that change containers; ``clock`` returns Unix time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls = list[_Call]()

    def caused(self, container_id: str, action: str, moment: float) -> bool:
        """Return whether an event of a container, at a Unix time, comes from a call of the agent.

        An event that the container causes itself meanwhile, such as a crash before the stop, does
        not.
        """
        return any(
            call.container_id == container_id
            and action in call.actions
            and call.began <= moment <= call.ended
            for call in self._calls
        )

    @contextmanager
    def call(
        self, container_id: str, actions: frozenset[str], *, grace_seconds: float = GRACE_SECONDS
    ) -> Iterator[None]:
        """Note a call about a container while the context is open, and the events it causes."""
        now = self._clock()
        self._calls = [each for each in self._calls if now - each.ended < KEPT_SECONDS]
        call = _Call(container_id=container_id, actions=actions, began=now)
        self._calls.append(call)
        seconds = UNANSWERED_SECONDS
        try:
            yield
            seconds = grace_seconds
        except EngineRejected:
            seconds = grace_seconds
            raise
        finally:
            call.ended = self._clock() + seconds
