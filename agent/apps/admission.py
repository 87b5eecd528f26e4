"""Checks before an operation begins, and the choice of what was left open."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agent.apps.defaults import AppDefaults
from agent.apps.disk import DiskGuard
from agent.apps.errors import AppExists, NameTaken
from agent.apps.ports import Ports
from agent.apps.repository import AppRepository
from agent.apps.validation import (
    check_allowed_command,
    check_allowed_data,
    check_fits_host,
    check_new_app,
)
from agent.engine.protocol import Container, Engine
from agent.model import App, AppChanges, NewApp, given_values, rfc3339


class Admission:
    """Admits what is asked for, if it is valid and this host has what it needs.

    Every method may raise EngineUnavailable.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        ports: Ports,
        disk_guard: DiskGuard,
        defaults: AppDefaults,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._ports = ports
        self._disk_guard = disk_guard
        self._defaults = defaults

    def check_name(self, name: str) -> None:
        """Refuse the name of an app that exists; AppExists."""
        if self._repository.find(name) is not None:
            raise AppExists(f"there is an app `{name}` already; choose another name")

    async def new_app(self, wanted: NewApp, *, now: float) -> App:
        """Return the app to create, with ports and limits where none are asked for.

        ``now`` is the Unix time of its creation.

        Raises:
            InvalidApp, AppExists, NameTaken, PortInUse, NoFreePort, DiskFull: it cannot be created.

        """
        check_new_app(wanted)
        self._check_allowed(given_values(wanted))
        self.check_name(wanted.name)
        host = await self._engine.info()
        self._disk_guard.check(host.data_root)
        containers = await self._ports.published()
        if any(container.name == wanted.name for container in containers):
            raise name_taken(wanted.name)
        app = self._complete(wanted, containers, created_at=rfc3339(now))
        check_fits_host(app, host)
        return app

    def _check_allowed(self, values: Mapping[str, Any]) -> None:
        check_allowed_command(values.get("command", ()), allowed=self._defaults.allow_command)
        check_allowed_data(values.get("data", ()), self._defaults.allowed_data)

    def _complete(self, wanted: NewApp, containers: list[Container], *, created_at: str) -> App:
        values = given_values(wanted)
        asked = [port for field in ("ssh_port", "http_port") if (port := values.get(field))]
        for port in asked:
            self._ports.check(wanted.name, port, containers, None)
        for field in ("ssh_port", "http_port"):
            if not values.get(field):
                values[field] = self._ports.pick(wanted.name, containers, asked)
                asked.append(values[field])
        limits = {"cpu": self._defaults.cpu, "memory": self._defaults.memory}
        return App(**{**limits, **values}, created_at=created_at)

    async def changed_app(
        self, app: App, changes: AppChanges, *, container: Container | None
    ) -> App:
        """Return the app as valid changes make it; its ``container`` holds its present ports.

        Raises:
            InvalidApp, PortInUse: it cannot be changed so.

        """
        values = given_values(changes)
        changed = {name: value for name, value in values.items() if value != getattr(app, name)}
        self._check_allowed(changed)
        target = msgspec.structs.replace(app, **values)
        if target.image != app.image:
            target = msgspec.structs.replace(target, image_id=None)
        check_fits_host(target, await self._engine.info())
        new_ports = {target.ssh_port, target.http_port} - {app.ssh_port, app.http_port}
        if new_ports:
            containers = await self._ports.published()
            for port in sorted(new_ports):
                self._ports.check(app.name, port, containers, container.id if container else None)
        return target

    async def check_disk(self) -> None:
        """Refuse to add data while a disk is nearly full; DiskFull."""
        self._disk_guard.check((await self._engine.info()).data_root)


def name_taken(name: str) -> NameTaken:
    """Return the error that another container has the name of an app."""
    return NameTaken(
        f"there is a container `{name}` that is not the agent's; it is left alone, so choose"
        " another name"
    )
