"""Which apps the engine took down with it when it went away."""

from collections.abc import Collection, Iterable, Mapping

from agent.apps.containers import UP_STATES
from agent.engine.protocol import Container, ContainerEvent
from agent.model import App


class Outage:
    """Remembers which containers were up as long as the engine was there to tell.

    An engine that crashes may find their processes at its next start, end them, and take that for
    somebody's stop. What ended while it was there was a stop, which is to be heeded.
    """

    def __init__(self) -> None:
        self._up: set[str] = set()
        self._gone = False

    def observe(self, event: ContainerEvent) -> None:
        """Take note of a start or an end, which the engine was there to tell of."""
        if event.action == "start":
            self._up.add(event.container_id)
        elif event.action == "die" and not self._gone:
            self._up.discard(event.container_id)

    def begin(self) -> None:
        """Take note that the engine went away."""
        self._gone = True

    def end(self, containers: Mapping[str, Container], apps: Iterable[App]) -> Collection[str]:
        """Look at all containers; name the apps that should run and went down with the engine."""
        victims = [
            app.name
            for app in apps
            if app.desired == "running"
            and app.container_id in self._up
            and app.container_id in containers
            and containers[app.container_id].state not in UP_STATES
        ]
        lost = victims if self._gone else []
        self._gone = False
        self._up = {each.id for each in containers.values() if each.state in UP_STATES}
        return lost
