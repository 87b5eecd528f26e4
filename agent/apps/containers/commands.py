"""The calls that change containers, and the events of the engine that they cause."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from agent.engine.errors import EngineRefused, NetworkNotFound
from agent.engine.models import Container, InspectedContainer
from agent.engine.protocol import Engine

# The engine may log the end or a pause of a container just after it has answered. It logs a start
# before it answers; a restart of the container may follow at once.
GRACE_SECONDS = 1.0
# A call without an answer may still be carried out.
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


class ContainerCommands:
    """Changes the state of containers; errors are as of the engine.

    ``engine`` serves everything else; ``clock`` returns Unix time.
    """

    def __init__(self, *, engine: Engine, clock: Callable[[], float]) -> None:
        self.engine = engine
        self._clock = clock
        self._calls = list[_Call]()

    def is_own_event(self, container_id: str, action: str, moment: float) -> bool:
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
    def _call(
        self, container_id: str, actions: frozenset[str], *, grace_seconds: float = GRACE_SECONDS
    ) -> Iterator[None]:
        now = self._clock()
        self._calls = [each for each in self._calls if now - each.ended < KEPT_SECONDS]
        call = _Call(container_id=container_id, actions=actions, began=now)
        self._calls.append(call)
        seconds = UNANSWERED_SECONDS
        try:
            yield
            seconds = grace_seconds
        except EngineRefused:
            seconds = grace_seconds
            raise
        finally:
            call.ended = self._clock() + seconds

    async def start(self, container: InspectedContainer) -> None:
        """Start a container; the engine starts it again when it ends, and at its own start.

        One that somebody has disconnected from its network is connected again.
        """
        await self.reconnect(container)
        if not container.autostart:
            await self.set_autostart(container.id, enabled=True)
        with self._call(container.id, START, grace_seconds=0), _network_needed():
            await self.engine.start(container.id)

    async def reconnect(self, container: Container) -> None:
        """Connect a container to its network, unless it is; NetworkNotFound."""
        if container.lost_network is not None:
            with _network_needed():
                await self.engine.connect(container.id, container.lost_network)

    async def set_autostart(self, container_id: str, *, enabled: bool) -> None:
        """Set whether the engine starts a container by itself."""
        with self._call(container_id, UPDATE):
            await self.engine.set_autostart(container_id, enabled=enabled)

    async def stop(self, container_id: str, seconds: int) -> None:
        """Stop a container; the engine kills it after ``seconds``."""
        with self._call(container_id, STOP):
            await self.engine.stop(container_id, seconds)

    async def remove(self, container_id: str) -> None:
        """Remove a container."""
        with self._call(container_id, REMOVE):
            await self.engine.remove(container_id)

    async def pause(self, container_id: str) -> None:
        """Pause a container."""
        with self._call(container_id, PAUSE):
            await self.engine.pause(container_id)

    async def unpause(self, container_id: str) -> None:
        """Unpause a container."""
        with self._call(container_id, UNPAUSE):
            await self.engine.unpause(container_id)

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        """Set other limits of a container."""
        with self._call(container_id, UPDATE):
            await self.engine.limit(container_id, cpu=cpu, memory=memory)


@contextmanager
def _network_needed() -> Iterator[None]:
    try:
        yield
    except NetworkNotFound as error:
        raise NetworkNotFound(
            f"the network of its container was removed ({error}); rebuild the app, so that its"
            " container is made anew"
        ) from error
