"""Observers get all containers of apps each time that these are compared with the database."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from agent.engine.models import Container, ContainerEvent


class ContainerObserver(ABC):
    """Looks at the containers of apps, and acts on their states."""

    @abstractmethod
    async def observe(self, containers: Mapping[str, Container]) -> None:
        """Look at all containers, by id, and act on them.

        Raises:
            EngineUnavailable, StoreError: it is called again later; so are those after it.
            EngineRefused: it is called again later; those after it look at once.

        """

    def is_due(self) -> bool:
        """Return whether it is to look now."""
        return False

    def seconds_to_next(self, most: float) -> float:
        """Return the seconds until the next look, at most ``most``."""
        return most

    def happened(self, event: ContainerEvent) -> None:
        """Act on an event of a container; by default, ignore it."""
        del event

    def engine_gone(self) -> None:
        """Record that no events come any more: the engine went away, or may have."""
        return
