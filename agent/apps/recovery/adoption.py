"""Reading apps from their containers, after the agent's own database was lost."""

from collections.abc import Collection, Iterable

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.containers.data import APP_LABEL
from agent.apps.containers.manager import UP_STATES
from agent.apps.containers.spec import app_from_label
from agent.apps.defaults import AppDefaults
from agent.apps.passwords import Passwords
from agent.apps.repository import AppRepository
from agent.apps.validation import APP_NAME
from agent.engine.protocol import Container, Engine, EngineRefused, ObjectNotFound
from agent.model import FIELD_KINDS, App, FieldKind

METADATA_FIELDS = tuple(field for field, kind in FIELD_KINDS.items() if kind is FieldKind.METADATA)


class Adoption:
    """Finds the apps whose containers an agent made. The containers are not changed."""

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        passwords: Passwords,
        defaults: AppDefaults,
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._passwords = passwords
        self._defaults = defaults
        self._log = log

    async def adopt(self) -> None:
        """Put the apps of all containers into a new database; do nothing in any other."""
        if self._repository.adopted:
            return
        found: dict[str, App] = {}
        for container in self._in_order(await self._engine.containers(label=APP_LABEL)):
            name = container.labels[APP_LABEL]
            if name not in found and self._repository.find(name) is None:
                app = await self._read(container)
                if app is not None:
                    found[name] = app
        await self._repository.adopt(list(found.values()))
        for name in found:
            self._log.warning("app read from its container", app=name)

    async def take_back(self, container: Container, existing: Collection[str]) -> bool:
        """Put a container's app into a database that is older than the container.

        ``existing`` are the ids of all containers.

        Returns:
            False if it is no app's: the copy of an app's container has another name than the app.

        """
        repository, name = self._repository, container.labels[APP_LABEL]
        known = repository.find(name)
        if container.name != name or (known is not None and known.container_id in existing):
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
        self._log.warning("app read from its container", app=name)
        return True

    @staticmethod
    def _in_order(containers: Iterable[Container]) -> list[Container]:
        # Of two containers of one app, the first counts: one that is named after the app, as copies
        # are not, then one that is up, then the one that has the very name of the app.
        def rank(each: Container) -> tuple[bool, bool, bool]:
            app = each.labels[APP_LABEL]
            named = each.name == app or each.name.startswith(f"{app}.NEXT-")
            return (not named, each.state not in UP_STATES, each.name != app)

        return sorted(containers, key=rank)

    async def _read(self, container: Container) -> App | None:
        name = container.labels[APP_LABEL]
        if not APP_NAME.fullmatch(name):
            return None
        try:
            seen = await self._engine.inspect(container.id)
            return app_from_label(
                seen,
                name=name,
                cpu=seen.cpu or self._defaults.cpu,
                memory=seen.memory or self._defaults.memory,
                desired="running" if seen.state in UP_STATES else "stopped",
                container_id=seen.id,
                image_id=seen.image_id,
                password=await self._passwords.read_hash(seen),
            )
        except ObjectNotFound:
            return None
        except (msgspec.MsgspecError, EngineRefused) as error:
            self._log.warning("container not read", app=name, reason=str(error))
            return None
