"""Reading apps from their containers, after the agent's own database was lost."""

from collections.abc import Collection, Iterable

import msgspec

from agent.apps.admission.fields import APP_NAME
from agent.apps.containers.containers import UP_STATES
from agent.apps.host import Host
from agent.apps.labels import APP_LABEL
from agent.engine.errors import EngineRefused, ObjectNotFound
from agent.engine.models import Container
from agent.model import FIELD_KINDS, App, FieldKind

METADATA_FIELDS = tuple(field for field, kind in FIELD_KINDS.items() if kind is FieldKind.METADATA)


class Adoption:
    """Reads apps from this agent's containers, which are not changed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._not_read: set[str] = set()

    async def adopt(self) -> bool:
        """Put the apps of all containers into a new database; return False for any other."""
        if self._host.context.repository.adopted:
            return False
        found: dict[str, App] = {}
        for container in in_order(await self._host.context.ownership.containers()):
            name = container.labels[APP_LABEL]
            if name not in found and self._host.context.repository.find(name) is None:
                app = await self._read(container)
                if app is not None:
                    found[name] = app
        await self._host.context.repository.adopt(list(found.values()))
        for name in found:
            self._host.context.log.warning("app read from its container", app=name)
        return True

    async def take_back(self, container: Container, existing: Collection[str]) -> bool:
        """Put a container's app into a database that is older than the container.

        ``existing`` are the ids of all containers.

        Returns:
            False if it belongs to no app. A copy of an app's container has another name than the
            app, and than a replacement of its container.

        """
        repository, name = self._host.context.repository, container.labels[APP_LABEL]
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
        self._host.context.log.warning("app read from its container", app=name)
        return True

    async def _read(self, container: Container) -> App | None:
        name = container.labels[APP_LABEL]
        if not APP_NAME.fullmatch(name):
            return None
        try:
            seen = await self._host.context.engine.inspect(container.id)
            app = await self._host.containers.read_app(
                seen,
                name=name,
                cpu=seen.cpu or self._host.context.defaults.cpu,
                memory=seen.memory or self._host.context.defaults.memory,
                desired="running" if seen.state in UP_STATES else "stopped",
                container_id=seen.id,
                image_id=seen.image_id,
            )
            return await self._with_password(app, seen)
        except ObjectNotFound:
            return None
        except (msgspec.MsgspecError, EngineRefused) as error:
            if container.id not in self._not_read:  # each sweep tries again
                self._not_read.add(container.id)
                self._host.context.log.warning("container not read", app=name, reason=str(error))
            return None

    async def _with_password(self, app: App, container: Container) -> App:
        try:
            held = await self._host.passwords.read_hash(container)
        except EngineRefused as error:
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
