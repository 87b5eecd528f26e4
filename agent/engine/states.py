"""The states of containers that the engine's list shows wrongly.

The engine writes each change of a container to its disk, and only then to its list. A change that
finds no room on the disk never reaches the list, also when there is room again. An inspect shows
it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from agent.engine.models import Container, InspectedContainer


@dataclass(frozen=True)
class _Correction:
    listed: "_Shown"
    seen: InspectedContainer


_Shown = tuple[str, frozenset[str] | None]


def _shown(container: Container) -> _Shown:
    """Return what a list may show wrongly."""
    return container.state, container.networks


class ContainerStates:
    """Corrects the states of a list by what was inspected.

    A correction lasts until the list shows another state or other networks, or the container may
    have changed.
    """

    def __init__(self) -> None:
        self._listed: dict[str, _Shown] = {}
        self._corrections: dict[str, _Correction] = {}

    def corrected(self, containers: Iterable[Container], *, complete: bool) -> list[Container]:
        """Return the containers of a list as they are; ``complete``: there are no others."""
        found = list(containers)
        listed = {each.id: _shown(each) for each in found}
        self._listed = listed if complete else self._listed | listed
        self._corrections = {
            container_id: each
            for container_id, each in self._corrections.items()
            if self._listed.get(container_id) == each.listed
        }
        return [self._corrected(each) for each in found] if self._corrections else found

    def _corrected(self, container: Container) -> Container:
        correction = self._corrections.get(container.id)
        if correction is None:
            return container
        seen = correction.seen
        return msgspec.structs.replace(
            container,
            state=seen.state,
            ports=seen.ports,
            health=seen.health,
            networks=seen.networks,
        )

    def inspected(self, container: InspectedContainer) -> None:
        """Compare an inspection with the last list."""
        listed = self._listed.get(container.id)
        if listed is None or listed == _shown(container):
            self.changed(container.id)
        else:
            self._corrections[container.id] = _Correction(listed, container)

    def changed(self, container_id: str) -> None:
        """Drop the correction of a container: its state may be another one now."""
        self._corrections.pop(container_id, None)

    def gone(self, container_id: str) -> None:
        """Forget a container that was removed."""
        self.changed(container_id)
        self._listed.pop(container_id, None)
