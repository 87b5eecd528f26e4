"""Reading apps back from their containers, after the agent's own database was lost."""

from collections.abc import Collection, Iterable

import msgspec

from agent.apps.container_spec import APP_LABEL, SPEC_LABEL, AppSpecLabel
from agent.apps.containers import UP_STATES, Workbench
from agent.apps.validation import APP_NAME
from agent.engine.protocol import (
    Container,
    EngineError,
    EngineUnavailable,
    InspectedContainer,
    ObjectNotFound,
)
from agent.model import App


class Adoption:
    """Finds the containers that an agent made, and the apps in them. Nothing is changed."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    async def adopt(self) -> None:
        """Take over, once for each new database, the apps that containers tell of."""
        found: dict[str, App] = {}
        for container in self._in_order(await self._bench.engine.containers(label=APP_LABEL)):
            name = container.labels[APP_LABEL]
            if name not in found and self._bench.repository.find(name) is None:
                app = await self._read(container)
                if app is not None:
                    found[name] = app
        await self._bench.repository.adopt(list(found.values()))
        for name in found:
            self._bench.log.warning("app read back from its container", app=name)

    async def take_back(self, container: Container, here: Collection[str]) -> bool:
        """Give a container back to its app, where the database is older than the container.

        ``here`` are the ids of all containers. False when it is no app's: a copy of one has another
        name than the app.
        """
        repository, name = self._bench.repository, container.labels[APP_LABEL]
        known = repository.find(name)
        if container.name != name or (known is not None and known.container_id in here):
            return False
        app = await self._read(container)
        if app is None or repository.change(name) is not None or repository.find(name) != known:
            return False
        if known is not None:
            app = msgspec.structs.replace(
                app, labels=known.labels, password=app.password or known.password
            )
        await repository.put(app)
        self._bench.log.warning("app read back from its container", app=name)
        return True

    @staticmethod
    def _in_order(containers: Iterable[Container]) -> list[Container]:
        # Of two for one app, one that is named after it, for others may be copies of it; of these
        # the one that runs, and else the one that has the app's name alone.
        def rank(each: Container) -> tuple[bool, bool, bool]:
            app = each.labels[APP_LABEL]
            named = each.name == app or each.name.startswith(f"{app}.NEXT-")
            return (not named, each.state not in UP_STATES, each.name != app)

        return sorted(containers, key=rank)

    async def _read(self, container: Container) -> App | None:
        name = container.labels[APP_LABEL]
        try:
            spec = msgspec.json.decode(container.labels.get(SPEC_LABEL, ""), type=AppSpecLabel)
            seen = await self._bench.engine.inspect(container.id)
            return await self._app(name, spec, seen) if APP_NAME.fullmatch(name) else None
        except EngineUnavailable:
            raise
        except (msgspec.MsgspecError, EngineError) as error:
            if not isinstance(error, ObjectNotFound):
                self._bench.log.warning("container not read", app=name, reason=str(error))
            return None

    async def _app(self, name: str, spec: AppSpecLabel, seen: InspectedContainer) -> App:
        return App(
            name=name,
            image=spec.image,
            ssh_port=spec.ssh_port,
            http_port=spec.http_port,
            cpu=seen.cpu or self._bench.defaults.cpu,
            memory=seen.memory or self._bench.defaults.memory,
            created_at=spec.created_at,
            env={key: seen.env[key] for key in spec.env if key in seen.env},
            labels=spec.labels,
            desired="running" if seen.state in UP_STATES else "stopped",
            container_id=seen.id,
            password=await self._bench.passwords.read_hash(seen),
        )
