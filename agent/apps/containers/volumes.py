"""The volumes of each app, which hold its data."""

import hashlib
import re
import shlex
from collections.abc import Collection, Mapping

import msgspec

from agent.apps.context import AgentContext
from agent.apps.defaults import AppDefaults
from agent.apps.errors import NameTaken, UnfitImage
from agent.apps.labels import AGENT_LABEL, APP_LABEL, OPERATION_LABEL, PATH_LABEL, engine_bytes
from agent.engine.errors import EngineConflict
from agent.engine.models import Container, Image
from agent.journal import CreateEntry, JournalEntry, ReplaceEntry
from agent.model import App

DATA_LABEL = "rollcall.data"
DATA_PATH = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){1,16}")
MAX_DATA_PATH_LENGTH = 256
FORBIDDEN_ROOTS = ("dev", "etc", "proc", "sys")
SEPARATORS = re.compile(r"[\s,]+")
# The map of an app is in a label of its container, which the engine repeats in each list and event.
MAX_VOLUMES = 64
MAX_PATHS_BYTES = 8192
DIGEST_LENGTH = 12


class Volumes:
    """The volumes of apps.

    An app's own volumes are those of its map. Any other is taken for an app only if it is labelled
    with the app, and is this agent's.
    """

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    async def plan(self, app: App, image: Image) -> tuple[App, dict[str, str]]:
        """Return an app with its whole map for an image, and the paths of missing ones, by name.

        Raises:
            NameTaken: a volume of a name that is needed is not ours.
            UnfitImage: there would be too many volumes.

        """
        volumes = dict(app.volumes) or await self._find(app.name)
        for path in data_paths(app, image, self._context.defaults):
            if path not in volumes:
                volumes[path] = await self._new_name(app.name, path, volumes.values())
        check_volumes(volumes, app.image)
        target = msgspec.structs.replace(app, volumes=volumes)
        mounted = mounted_volumes(target, image, self._context.defaults)
        return target, {
            name: path
            for path, name in mounted.items()
            if await self._context.engine.volume_labels(name) is None
        }

    async def prepare(self, entry: CreateEntry | ReplaceEntry, image: Image) -> App:
        """Create the volumes that the entry's target lacks for this image; errors as of ``plan``.

        The journal names them before they are made, so that they are removed if the operation
        is interrupted; and the image, so that it stays. Return the target with the whole map.
        """
        target, missing = await self.plan(entry.target, image)
        made = tuple(dict.fromkeys((*entry.new_volumes, *self._journalled(entry), *missing)))
        prepared = msgspec.structs.replace(entry, target=target, new_volumes=made)
        if prepared != self._context.repository.entry(entry.app):
            await self._context.repository.advance(prepared)
        for name, path in missing.items():
            await self._create(name, path, entry)
        return target

    def made_empty(
        self, entry: CreateEntry | ReplaceEntry, mounted: Mapping[str, str]
    ) -> list[str]:
        """Return the paths of mounted volumes that an operation made, and did not fill."""
        if entry.header.operation == "restore":
            return []
        made = self._journalled(entry)
        return [path for path, name in mounted.items() if name in made]

    async def lost(self, entry: CreateEntry | ReplaceEntry) -> list[str]:
        """Return the volumes of an app that are gone, and will be made again, empty."""
        return [
            f"`{name}` of {path}"
            for path, name in sorted(entry.target.volumes.items())
            if name not in entry.new_volumes
            and await self._context.engine.volume_labels(name) is None
        ]

    async def make(self, entry: ReplaceEntry, volumes: Mapping[str, str]) -> None:
        """Create new volumes, by path, that the entry names; NameTaken."""
        for path, name in volumes.items():
            await self._create(name, path, entry)

    async def _create(self, name: str, path: str, entry: CreateEntry | ReplaceEntry) -> None:
        labels = volume_labels(
            entry.app, path, agent=self._context.ownership.agent, operation=entry.id
        )
        await self._context.engine.create_volume(name, labels)
        # The engine returns an existing volume, if somebody else made it first.
        seen = await self._context.engine.volume_labels(name)
        if seen is not None:
            self._check_ours(name, seen, entry.app)

    async def _find(self, app: str) -> dict[str, str]:
        """Return the volumes, by path, that a deleted app of this name has left."""
        found = await self._context.engine.volumes(label=f"{APP_LABEL}={app}")
        ours = {name: each for name, each in found.items() if self._is_ours(each, app)}
        kept = self._context.repository.kept_data(app)
        volumes = {path: name for path, name in kept.items() if name in ours}
        for name, labels in sorted(ours.items()):
            path = labels.get(PATH_LABEL)
            if path is not None and name not in volumes.values():
                volumes.setdefault(path, name)
        return volumes

    async def ours(self, app: str, volumes: Mapping[str, str]) -> dict[str, str]:
        """Return those of these volumes, by path, that are the app's and this agent's."""
        found = await self._context.engine.volumes(label=f"{APP_LABEL}={app}")
        ours = {
            path: name
            for path, name in volumes.items()
            if name in found and self._is_ours(found[name], app)
        }
        for path in volumes.keys() - ours.keys():
            self._context.log.warning(
                "volume not used: it is not the agent's", app=app, path=path, volume=volumes[path]
            )
        return ours

    async def _new_name(self, app: str, path: str, taken: Collection[str]) -> str:
        for name in (volume_name(app), volume_name(app, path)):
            if name not in taken:
                labels = await self._context.engine.volume_labels(name)
                if labels is None:
                    return name
                self._check_ours(name, labels, app)
                if labels.get(PATH_LABEL) == path:
                    return name
        raise NameTaken(
            f"there is a volume `{volume_name(app, path)}` of another path than {path}; remove it"
            " if nobody needs its data, or choose another name for the app"
        )

    def _is_ours(self, labels: Mapping[str, str], app: str) -> bool:
        return labels.get(APP_LABEL) == app and self._context.ownership.owns_volume(labels)

    def _check_ours(self, name: str, labels: Mapping[str, str], app: str) -> None:
        if self._is_ours(labels, app):
            return
        agent = labels.get(AGENT_LABEL, self._context.ownership.agent)
        whose, else_run = "that is not the agent's", ""
        if agent != self._context.ownership.agent:
            whose = f"of another agent, whose identity is `{agent}`"
            command = f"rollcall-agent adopt {shlex.quote(agent)}"
            else_run = f", or run `{command}` if no other agent uses it"
        raise NameTaken(
            f"there is a volume `{name}` {whose}; it is left alone, so choose another name for the"
            f" app, or remove the volume if nobody needs its data{else_run}"
        )

    def owned(self, app: App) -> dict[str, str]:
        """Return the volumes, by path, that go with an app when it is deleted.

        Data that an earlier delete kept belongs to an app only once its creation has succeeded.
        """
        unfinished = self._context.repository.entry(app.name)
        own = {} if isinstance(unfinished, CreateEntry) or app.failed else dict(app.volumes)
        if isinstance(unfinished, CreateEntry | ReplaceEntry):
            target, made = unfinished.target, unfinished.new_volumes
            own |= {path: name for path, name in target.volumes.items() if name in made}
        return own

    def removable(self, app: App, owned: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the volumes to remove with an app that owns these.

        With them go those that an unfinished operation made.
        """
        unfinished = self._context.repository.entry(app.name)
        made = unfinished.new_volumes if isinstance(unfinished, ReplaceEntry) else ()
        return tuple(dict.fromkeys((*owned.values(), *made)))

    async def remove(self, app: str, names: Collection[str]) -> None:
        """Remove an app's volumes, those that are there.

        One that a person has made, and mounted into the container of the app, stays.

        Raises:
            EngineConflict: some are used, and stay; the others are removed.

        """
        conflicts = list[EngineConflict]()
        for name in names:
            labels = await self._context.engine.volume_labels(name)
            if labels is None:
                continue
            if not self._is_ours(labels, app):
                self._context.log.warning(
                    "volume not removed: it is not the agent's", app=app, volume=name
                )
                continue
            try:
                await self._context.engine.remove_volume(name)
            except EngineConflict as error:
                conflicts.append(error)
        if conflicts:
            raise conflicts[0]

    async def undo(self, entry: JournalEntry) -> None:
        """Remove the volumes that an operation made.

        One that another container uses by now stays: the next app of that name gets it.
        """
        for name in self._journalled(entry):
            await self._undo(entry, name)

    def _journalled(self, entry: JournalEntry) -> tuple[str, ...]:
        """Return the names of the volumes that an operation makes, as the journal has them."""
        latest = self._context.repository.entry(entry.app)
        if isinstance(latest, CreateEntry | ReplaceEntry) and latest.id == entry.id:
            return latest.new_volumes
        return ()

    async def _undo(self, entry: JournalEntry, name: str) -> None:
        labels = await self._context.engine.volume_labels(name)
        # Somebody else may have made a volume of this name first.
        if labels is None or labels.get(OPERATION_LABEL) != entry.id:
            return
        try:
            await self.remove(entry.app, [name])
        except EngineConflict as error:
            self._context.log.warning(
                "new volume not removed: it is in use", app=entry.app, reason=str(error)
            )

    async def users(self, names: Collection[str]) -> list[Container]:
        """List the containers, running or not, that use one of these volumes."""
        return [user for name in names for user in await self._context.engine.volume_users(name)]


def is_data_path(text: str) -> bool:
    """Return whether a volume may be mounted there, as a setting or a label of an image asks."""
    fits = len(text) <= MAX_DATA_PATH_LENGTH and DATA_PATH.fullmatch(text) is not None
    return fits and text.split("/")[1] not in FORBIDDEN_ROOTS


def labelled_paths(image: Image) -> tuple[str, ...]:
    """Return the paths of the image's label; none if one of them is invalid."""
    paths = tuple(dict.fromkeys(SEPARATORS.split(image.labels.get(DATA_LABEL, "").strip(" ,"))))
    return paths if all(map(is_data_path, paths)) else ()


def data_paths(app: App, image: Image, defaults: AppDefaults) -> tuple[str, ...]:
    """Return the paths that must have a volume, in the order in which new volumes get names."""
    own = sorted(image.volumes)
    chosen = app.data or labelled_paths(image) or own or (defaults.data,)
    return tuple(dict.fromkeys((*chosen, *own)))


def mounted_volumes(app: App, image: Image, defaults: AppDefaults) -> dict[str, str]:
    """Return the volumes to mount, by path.

    Without ``data``, each path that has a volume goes on being mounted: no image makes files of an
    app disappear. With it, only the operator's paths and the image's own are.
    """
    paths = data_paths(app, image, defaults) if app.data else app.volumes
    return {path: app.volumes[path] for path in paths}


def check_volumes(volumes: Mapping[str, str], image: str) -> None:
    """Reject a map that is too large; UnfitImage."""
    if len(volumes) > MAX_VOLUMES:
        raise UnfitImage(
            f"with the image `{image}` the app would have {len(volumes)} volumes, and may have"
            f" {MAX_VOLUMES}, with those of the paths that it had before; use another image, or"
            " create the app anew"
        )
    size = engine_bytes(volumes)
    if size > MAX_PATHS_BYTES:
        raise UnfitImage(
            f"with the image `{image}` the paths of the app's volumes would take {size} bytes in"
            f" the engine's lists and events, and may take {MAX_PATHS_BYTES}; use another image,"
            " or create the app anew"
        )


def volume_name(app: str, path: str | None = None) -> str:
    """Return the name of an app's first volume, or of another one, which is at ``path``."""
    if path is None:
        return f"rollcall-{app}"
    return f"rollcall-{app}-{hashlib.sha256(path.encode()).hexdigest()[:DIGEST_LENGTH]}"


def restored_volume_name(app: str, path: str, *, operation: str) -> str:
    """Return the name of a volume that an operation fills with data that was sent."""
    return f"{volume_name(app, path)}-{operation[:8]}"


def volume_labels(app: str, path: str, *, agent: str, operation: str) -> dict[str, str]:
    """Return the labels of a volume; ``agent`` and ``operation`` are the ids of what makes it."""
    return {APP_LABEL: app, PATH_LABEL: path, AGENT_LABEL: agent, OPERATION_LABEL: operation}
