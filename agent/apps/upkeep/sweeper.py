"""Containers that the database does not know: read as apps, given back to them, or removed."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from agent.apps.admission.fields import APP_NAME
from agent.apps.containers.containers import UP_STATES
from agent.apps.host import Host
from agent.apps.labels import APP_LABEL
from agent.apps.runner.runner import OperationRunner
from agent.engine.errors import EngineRejected, ObjectNotFound
from agent.engine.models import Container
from agent.model import FIELD_KINDS, App, FieldKind

METADATA_FIELDS = tuple(field for field, kind in FIELD_KINDS.items() if kind is FieldKind.METADATA)


class Sweeper:
    """Handles the labelled containers that belong to no app, or have another name than theirs."""

    def __init__(self, host: Host, runner: OperationRunner) -> None:
        self._host = host
        self._context = host.context
        self._repository = host.context.repository
        self._runner = runner
        self._logged: set[tuple[str, str]] = set()

    async def adopt(self) -> bool:
        """Put the apps of all containers into a new database; return False for any other."""
        if self._repository.adopted:
            return False
        found: dict[str, App] = {}
        for container in in_order(await self._context.ownership.containers()):
            name = container.labels[APP_LABEL]
            if name not in found and self._repository.find(name) is None:
                app = await self._read(container)
                if app is not None:
                    found[name] = app
        await self._repository.adopt(list(found.values()))
        for name in found:
            self._context.log.warning("app read from its container", app=name)
        return True

    async def sweep(self, containers: Collection[Container]) -> bool:
        """Remove the containers that undone operations left.

        Any other is given back to its app, or left alone: it may be an operator's copy, or the
        database may be an old one. ``containers`` are all, as they are now. Return whether there
        was any that belongs to no app.
        """
        existing, found = {container.id for container in containers}, False
        for container in in_order(containers):
            orphan = self._context.ownership.is_orphan(container)
            if self._is_stray(container):
                found = True
                if orphan:
                    await self._remove(container)
                elif not await self._take_back(container, existing):
                    self._warn_once("container of no app left alone", container)
        return found

    def _is_stray(self, container: Container) -> bool:
        name = container.labels[APP_LABEL]
        app = self._repository.find(name)
        idle = not self._runner.is_busy(name)
        return idle and (app is None or app.container_id != container.id)

    async def _remove(self, container: Container) -> None:
        if container.state in UP_STATES:
            self._warn_once("container of an undone operation left alone: it is up", container)
            return
        try:
            await self._host.containers.remove(container.id)
        except EngineRejected as error:  # other containers are swept all the same
            self._warn_once("container not removed", container, reason=str(error))
        else:
            self._warn("container removed that an undone operation had left", container)

    async def rename(self, containers: Mapping[str, Container]) -> None:
        """Rename containers to their apps: another one held the name when they were made."""
        for app in self._repository.existing():
            container = containers.get(app.container_id or "")
            idle = not self._runner.is_busy(app.name)
            if container is not None and idle and container.name.startswith(f"{app.name}.NEXT-"):
                await self._rename(container, app.name)

    async def _rename(self, container: Container, name: str) -> None:
        try:
            renamed = await self._host.containers.rename(container.id, name)
        except EngineRejected as error:  # the others are compared all the same
            self._warn_once("container not renamed", container, reason=str(error))
        else:
            if not renamed:
                self._warn_once("name held by another container", container)

    def _warn_once(self, event: str, container: Container, **fields: str) -> None:
        if (event, container.id) not in self._logged:
            self._logged.add((event, container.id))
            self._warn(event, container, **fields)

    def _warn(self, event: str, container: Container, **fields: str) -> None:
        app = container.labels.get(APP_LABEL)
        self._context.log.warning(event, app=app, container=container.name, **fields)

    async def _take_back(self, container: Container, existing: Collection[str]) -> bool:
        """Put a container's app into a database that is older than the container.

        ``existing`` are the ids of all containers.

        Returns:
            False if it belongs to no app. A copy of an app's container has another name than the
            app, and than a replacement of its container.

        """
        repository, name = self._repository, container.labels[APP_LABEL]
        known = repository.find(name)
        if not _is_named_after_app(container, unknown=known is None):
            return False
        if known is not None and known.container_id in existing:
            return False
        app = await self._read(container)
        if app is None or repository.entry(name) is not None or repository.find(name) != known:
            return False
        if known is not None:
            # These change without another container, so the database is newer than the label.
            metadata = {field: getattr(known, field) for field in METADATA_FIELDS}
            password = app.password or known.password
            app = msgspec.structs.replace(app, **metadata, labels=known.labels, password=password)
        await repository.put(app)
        self._context.log.warning("app read from its container", app=name)
        return True

    async def _read(self, container: Container) -> App | None:
        name = container.labels[APP_LABEL]
        if not APP_NAME.fullmatch(name):
            return None
        try:
            seen = await self._context.engine.inspect(container.id)
            app = await self._host.containers.read_app(
                seen,
                name=name,
                cpu=seen.cpu or self._context.defaults.cpu,
                memory=seen.memory or self._context.defaults.memory,
                desired="running" if seen.state in UP_STATES else "stopped",
                container_id=seen.id,
                image_id=seen.image_id,
            )
            return await self._with_password(app, seen)
        except ObjectNotFound:
            return None
        except (msgspec.MsgspecError, EngineRejected) as error:
            # Each sweep tries again.
            self._warn_once("container not read", container, reason=str(error))
            return None

    async def _with_password(self, app: App, container: Container) -> App:
        try:
            held = await self._host.passwords.read_hash(container)
        except EngineRejected as error:
            message = f"its password is not known, set it again: {error}"
            return msgspec.structs.replace(app, message=message)
        return msgspec.structs.replace(app, password=held)


def in_order(containers: Iterable[Container]) -> list[Container]:
    """Return the containers in the order in which they are taken for their apps.

    Of several containers of one app, the first is taken. Preferred are, in this order: one that is
    named after the app, which copies are not; one that is up; one with exactly the app's name.
    """

    def rank(each: Container) -> tuple[bool, bool, bool]:
        named = _is_named_after_app(each, unknown=True)
        return (not named, each.state not in UP_STATES, each.name != each.labels[APP_LABEL])

    return sorted(containers, key=rank)


def _is_named_after_app(container: Container, *, unknown: bool) -> bool:
    """Return whether it has its app's name, or with ``unknown`` that of an unfinished replacement.

    ``unknown`` says that the app is not in the database.
    """
    app = container.labels[APP_LABEL]
    return container.name == app or (unknown and container.name.startswith(f"{app}.NEXT-"))
