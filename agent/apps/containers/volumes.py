"""The volumes of each app, which hold its data."""

from collections.abc import Collection, Mapping
from contextlib import suppress

import msgspec
from structlog.typing import FilteringBoundLogger

from agent.apps.containers.data import (
    AGENT_LABEL,
    APP_LABEL,
    OPERATION_LABEL,
    PATH_LABEL,
    check_volumes,
    data_paths,
    is_anonymous,
    mounted_volumes,
    unlabelled_path,
    volume_labels,
    volume_name,
)
from agent.apps.defaults import AppDefaults
from agent.apps.errors import NameTaken
from agent.apps.repository import AppRepository
from agent.engine.protocol import Container, Engine, EngineConflict, Image, ObjectNotFound
from agent.model import App, CreateEntry, JournalEntry, ReplaceEntry


class Volumes:
    """The volumes of apps; ``identity`` is that of this agent, which they are labelled with.

    An app's own volumes are those of its map, whatever their labels. Any other is ours if it is
    labelled with the app, and with this agent or with none, as versions before did.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        repository: AppRepository,
        identity: str,
        defaults: AppDefaults,
        log: FilteringBoundLogger,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._identity = identity
        self._defaults = defaults
        self._log = log

    async def prepare(self, entry: CreateEntry | ReplaceEntry, image: Image) -> App:
        """Create the volumes that the entry's target lacks for this image.

        The journal names them before they are made, so that they are removed if the operation
        breaks off.

        Returns:
            The entry's target with the whole map.

        Raises:
            NameTaken: a volume of a name that is needed is not ours.
            UnfitImage: there would be too many volumes.

        """
        app = entry.target
        volumes = dict(app.volumes) or await self._find(entry, image)
        for path in data_paths(app, image, self._defaults):
            if path not in volumes:
                volumes[path] = await self._new_name(app.name, path, volumes.values())
        check_volumes(volumes, app.image)
        target = msgspec.structs.replace(app, volumes=volumes)
        missing: dict[str, str] = {
            name: path
            for path, name in mounted_volumes(target, image, self._defaults).items()
            if await self._engine.volume_labels(name) is None
        }
        made = tuple(dict.fromkeys((*entry.new_volumes, *missing)))
        prepared = msgspec.structs.replace(entry, target=target, new_volumes=made)
        if prepared != entry:
            await self._repository.advance(prepared)
        for name, path in missing.items():
            await self._create(name, path, entry)
        return target

    async def _create(self, name: str, path: str, entry: CreateEntry | ReplaceEntry) -> None:
        labels = volume_labels(entry.app, path, agent=self._identity, operation=entry.id)
        await self._engine.create_volume(name, labels)
        # The engine gives an existing volume, if somebody was quicker.
        seen = await self._engine.volume_labels(name)
        if seen is not None:
            self._check_ours(name, seen, entry.app)

    async def _find(self, entry: CreateEntry | ReplaceEntry, image: Image) -> dict[str, str]:
        """Return the volumes, by path, that an app has from before its map was written."""
        if isinstance(entry, ReplaceEntry):
            mounted = await self._mounted(entry.before)
            if mounted:
                return mounted
        kept = {
            path: name
            for path, name in self._repository.kept_data(entry.app).items()
            if await self._is_kept(name, entry.app)
        }
        found = await self._engine.volumes(label=f"{APP_LABEL}={entry.app}")
        for name, labels in sorted(found.items()):
            if self._is_ours(labels, entry.app) and name not in kept.values():
                path = labels.get(PATH_LABEL)
                if path is None and name == volume_name(entry.app):
                    path = unlabelled_path(entry.target, image, self._defaults)
                if path is not None:
                    kept.setdefault(path, name)
        return kept

    async def _is_kept(self, name: str, app: str) -> bool:
        """Return whether a volume is still the one that a deleted app has left."""
        labels = await self._engine.volume_labels(name)
        return labels is not None and (APP_LABEL not in labels or self._is_ours(labels, app))

    async def _mounted(self, app: App) -> dict[str, str]:
        if app.container_id is not None:
            with suppress(ObjectNotFound):
                return dict((await self._engine.inspect(app.container_id)).volumes)
        return {}

    async def _new_name(self, app: str, path: str, taken: Collection[str]) -> str:
        for name in (volume_name(app), volume_name(app, path)):
            if name not in taken:
                labels = await self._engine.volume_labels(name)
                if labels is None:
                    return name
                self._check_ours(name, labels, app)
                if labels.get(PATH_LABEL, path) == path:
                    return name
        raise NameTaken(f"there is a volume `{volume_name(app, path)}` of another path than {path}")

    def _is_ours(self, labels: Mapping[str, str], app: str) -> bool:
        agent = labels.get(AGENT_LABEL, self._identity)
        return labels.get(APP_LABEL) == app and agent == self._identity

    def _check_ours(self, name: str, labels: Mapping[str, str], app: str) -> None:
        if self._is_ours(labels, app):
            return
        agent = labels.get(AGENT_LABEL, self._identity)
        whose = "that is not the agent's"
        if agent != self._identity:
            whose = f"of another agent, whose identity is `{agent}`"
        raise NameTaken(
            f"there is a volume `{name}` {whose}; it is left alone, so choose another name for the"
            " app, or remove the volume if nobody needs its data"
        )

    async def owned(self, app: App) -> dict[str, str]:
        """Return the volumes, by path, that go with an app when it is deleted.

        Data that was kept from before belongs to an app only once its creation has succeeded.
        """
        unfinished = self._repository.entry(app.name)
        if isinstance(unfinished, CreateEntry) or app.failed:
            own = dict[str, str]()
        else:
            own = app.volumes or await self._mounted(app)
        if isinstance(unfinished, CreateEntry | ReplaceEntry):
            target, made = unfinished.target, unfinished.new_volumes
            own = own | {path: name for path, name in target.volumes.items() if name in made}
        return own

    async def removable(self, app: App, owned: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the volumes to remove with an app that owns these.

        One of an earlier version that has lost its container has the volume that is named after it.
        """
        being_created = isinstance(self._repository.entry(app.name), CreateEntry)
        if owned or app.failed or being_created:
            return tuple(owned.values())
        name = volume_name(app.name)
        labels = await self._engine.volume_labels(name)
        return (name,) if labels is not None and self._is_ours(labels, app.name) else ()

    async def remove(self, app: str, names: Collection[str]) -> None:
        """Remove an app's volumes, those that are there.

        One that a person has made, and mounted into the container of the app, stays.

        Raises:
            EngineConflict: some are used, and stay; the others are removed.

        """
        conflicts = list[EngineConflict]()
        for name in names:
            labels = await self._engine.volume_labels(name)
            if labels is None:
                continue
            if labels.get(APP_LABEL) != app and not is_anonymous(name, labels):
                self._log.warning("volume of somebody else left alone", app=app, volume=name)
                continue
            try:
                await self._engine.remove_volume(name)
            except EngineConflict as error:
                conflicts.append(error)
        if conflicts:
            raise conflicts[0]

    async def undo(self, entry: JournalEntry) -> None:
        """Remove the volumes that an operation made.

        One that another container uses by now stays: the next app of that name gets it.
        """
        latest = self._repository.entry(entry.app)
        if isinstance(latest, CreateEntry | ReplaceEntry) and latest.id == entry.id:
            for name in latest.new_volumes:
                await self._undo(entry, name)

    async def _undo(self, entry: JournalEntry, name: str) -> None:
        labels = await self._engine.volume_labels(name)
        # Somebody else may have made a volume of this name first.
        if labels is None or labels.get(OPERATION_LABEL, entry.id) != entry.id:
            return
        try:
            await self.remove(entry.app, [name])
        except EngineConflict as error:
            self._log.warning("new volume left alone", app=entry.app, reason=str(error))

    async def users(self, names: Collection[str]) -> list[Container]:
        """List the containers, running or not, that use one of these volumes."""
        return [user for name in names for user in await self._engine.volume_users(name)]
