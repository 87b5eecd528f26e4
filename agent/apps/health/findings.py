"""The latest results of the checks of apps."""

from collections.abc import Collection
from typing import TypeVar

import msgspec

from agent.engine.models import Container, Health
from agent.model import App

C = TypeVar("C", bound=Container)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has found, and why the last one in a row failed."""

    health: Health = "starting"
    reason: str = ""


UNKNOWN = Finding()


class Findings:
    """What the checks of records have found, by the id of the container."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}

    def copied(self) -> "Findings":
        """Return a copy, which changes by itself."""
        copy = Findings()
        for container_id, finding in self._findings.items():
            copy.put(container_id, finding)
        return copy

    def of(self, container_id: str) -> Finding:
        """Return what was found last; ``starting`` where nothing was."""
        return self._findings.get(container_id, UNKNOWN)

    def put(self, container_id: str, finding: Finding) -> None:
        """Remember a finding."""
        self._findings[container_id] = finding

    def forget(self, container_id: str) -> None:
        """Forget what was found before a container was started again."""
        self._findings.pop(container_id, None)

    def keep(self, container_ids: Collection[str]) -> None:
        """Forget all others."""
        self._findings = {
            each: found for each, found in self._findings.items() if each in container_ids
        }

    def shown(self, app: App, container: C) -> C:
        """Return a container with what the check of its app has found, if the app has one.

        Otherwise its health is what the check of the image has found.
        """
        if app.health is None:
            return container
        health = self.of(container.id).health if container.state == "running" else None
        return msgspec.structs.replace(container, health=health)

    def why_unhealthy(self, app: App, container: Container | None) -> str | None:
        """Return why a running app is unhealthy, None if it is not, or has no check of its own."""
        if app.health is None or container is None or container.state != "running":
            return None
        found = self.of(container.id)
        return found.reason if found.health == "unhealthy" else None
