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
        # Why a container was unhealthy that was started again since, and was not healthy yet.
        self._unhealthy_before: dict[str, str] = {}

    def copied(self) -> "Findings":
        """Return a copy, which changes by itself."""
        copy = Findings()
        copy._findings = self._findings.copy()
        copy._unhealthy_before = self._unhealthy_before.copy()
        return copy

    def of(self, container_id: str) -> Finding:
        """Return what was found last; ``starting`` where nothing was."""
        return self._findings.get(container_id, UNKNOWN)

    def put(self, container_id: str, finding: Finding) -> None:
        """Remember a finding."""
        self._findings[container_id] = finding
        if finding.health == "healthy":
            self._unhealthy_before.pop(container_id, None)

    def begin_anew(self, container_id: str) -> None:
        """Forget what was found before a container was started again, but that it was unhealthy."""
        found = self._findings.pop(container_id, UNKNOWN)
        if found.health == "unhealthy":
            self._unhealthy_before[container_id] = found.reason

    def forget(self, container_id: str) -> None:
        """Forget all that was found of a container."""
        self._findings.pop(container_id, None)
        self._unhealthy_before.pop(container_id, None)

    def keep(self, container_ids: Collection[str]) -> None:
        """Forget all others."""
        self._findings = {
            each: found for each, found in self._findings.items() if each in container_ids
        }
        self._unhealthy_before = {
            each: why for each, why in self._unhealthy_before.items() if each in container_ids
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
        """Return why a running app is unhealthy, None if it is not, or has no check of its own.

        One that was unhealthy remains so over a restart, until a check has passed.
        """
        if app.health is None or container is None or container.state != "running":
            return None
        found = self.of(container.id)
        if found.health == "unhealthy":
            return found.reason
        return self._unhealthy_before.get(container.id)
