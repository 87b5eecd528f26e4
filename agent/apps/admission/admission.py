"""Checks before an operation, the room for apps, and the choice of what was left out."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from agent.apps.admission.disk import DiskGuard
from agent.apps.admission.fields import (
    check_allowed_command,
    check_allowed_data,
    check_fits_host,
    check_given_up_ports,
    check_new_app,
)
from agent.apps.admission.ports import Ports
from agent.apps.context import AgentContext
from agent.apps.errors import (
    AppExists,
    ImageNotAllowed,
    MemoryPromised,
    NameTaken,
    PortForbidden,
    TooManyApps,
    TooMuchKeptData,
)
from agent.apps.labels import APP_LABEL, check_label_size, encode_label, engine_bytes
from agent.apps.repository.repository import AppRepository
from agent.engine.logins import full_reference, is_image_id, normal_name
from agent.engine.models import Container, EngineInfo, Image
from agent.model import FIELD_KINDS, App, AppChanges, FieldKind, NewApp, given_values, rfc3339
from agent.state.history import Revision
from runtime.turns import share

MOST_APPS = 500
MOST_BYTES = 8 * 1024 * 1024
# The engine lists all volumes in one answer.
MOST_KEPT_VOLUMES = 5000


class AppRoom:
    """The room for apps, of which the apps of one key for some apps have their share at most."""

    def __init__(self, repository: AppRepository) -> None:
        self._repository = repository
        # With the app as it was measured: measuring all would take long.
        self._measured: dict[str, tuple[App, int]] = {}

    def check(self, app: App) -> None:
        """Reject an app that is new, or larger than before, if there is no room; TooManyApps."""
        before, size = self._repository.find(app.name), _bytes_of(app)
        if before is not None and size <= _bytes_of(before):
            return
        others = self._repository.most(self._bytes, other_than=app.name)
        self._measured = {each: self._measured[each] for each in others}
        for whose, group, part in self._groups(app.name, others):
            self._check(group, size, whose, part(MOST_APPS), part(MOST_BYTES))

    def check_memory(self, app: App, host: EngineInfo, percent: int) -> None:
        """Reject an app that would be promised more memory than there is; MemoryPromised.

        ``percent`` of the host's may be promised, 0 is no bound. An app whose creation failed is
        promised nothing until a container is made for it.
        """
        others = self._repository.most(
            lambda each: 0 if each.failed else each.memory, other_than=app.name
        )
        for whose, group, part in self._groups(app.name, others) if percent else ():
            promised, most = sum(group.values()), part(host.memory * percent // 100)
            if promised + app.memory > most:
                raise MemoryPromised(
                    f"{promised} MiB are promised to other apps{whose}, and {app.memory} more would"
                    f" be over {most} MiB,{' four fifths of' if whose else ''} {percent} % of the"
                    f" host's {host.memory} (`apps.overcommit_percent`); give this app less memory,"
                    " or delete or limit others"
                )

    def check_kept_data(self, name: str, volumes: int, kept: dict[str, int]) -> None:
        """Check that so many volumes of an app may be kept; TooMuchKeptData.

        ``kept`` is how many of each deleted app there are.
        """
        for whose, group, part in self._groups(name, kept):
            present, most = sum(group.values()), part(MOST_KEPT_VOLUMES)
            if present + volumes > most:
                raise TooMuchKeptData(
                    f"deleted apps{whose} have left {present} volumes, and may leave {most}; delete"
                    " this app without ?keep_data=true, or create apps whose data nobody needs"
                    " again and delete them without it"
                )

    def _groups(
        self, name: str, others: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, int], Callable[[int], int]]]:
        """Yield all others, and those of each key of the app, with what they may have of all."""
        yield "", others, int
        for key in self._keys(name):
            of_key = {other: each for other, each in others.items() if key in self._keys(other)}
            yield f" of the key `{key}`", of_key, share

    def _check(
        self, others: dict[str, int], size: int, whose: str, most_apps: int, most_bytes: int
    ) -> None:
        if len(others) >= most_apps:
            raise TooManyApps(
                f"there are {len(others)} other apps{whose}, and may be {most_apps} in all; delete"
                " some that nobody needs, failed ones too"
            )
        total = sum(others.values()) + size
        if total > most_bytes:
            raise TooManyApps(
                f"the fields of all apps{whose} would take {total} bytes together, and may take"
                f" {most_bytes}; write less into `env`, `command` and the labels of this app, or"
                " delete others"
            )

    def _keys(self, name: str) -> list[str]:
        return [key for key in self._repository.holders(name).split(",") if key]

    def _bytes(self, app: App) -> int:
        measured = self._measured.get(app.name)
        if measured is None or measured[0] is not app:
            measured = self._measured[app.name] = (app, _bytes_of(app))
        return measured[1]


def _bytes_of(app: App) -> int:
    """Return the bytes of an app as the engine repeats it, with the values of its variables."""
    return engine_bytes([encode_label(app)]) + sum(len(each.encode()) for each in app.env.values())


class Admission:
    """Admits a change if it is valid and this host has what it needs.

    Every method may raise EngineUnavailable.
    """

    def __init__(self, context: AgentContext, ports: Ports, disk: DiskGuard) -> None:
        self._context = context
        self._ports = ports
        self._disk = disk
        self._room = AppRoom(context.repository)

    def check_name(self, name: str) -> None:
        """Reject the name of an app that exists; AppExists."""
        if self._context.repository.find(name) is not None:
            raise AppExists(f"there is an app `{name}` already; choose another name")

    async def new_app(self, wanted: NewApp, *, now: float, picked_ports_only: bool) -> App:
        """Return the app to create, with ports and limits where none are asked for.

        ``now`` is the Unix time of its creation.

        Raises:
            InvalidApp, ImageNotAllowed, AppExists, NameTaken, PortInUse, PortForbidden, NoFreePort,
            DiskFull, MemoryPromised, TooManyApps: it cannot be created.

        """
        check_new_app(wanted)
        values = given_values(wanted)
        self._check_allowed(values)
        if picked_ports_only:
            asked = (values.get("ssh_port"), values.get("http_port"))
            self._check_picked(port for port in asked if port)
        self.check_name(wanted.name)
        await self.check_image(wanted.image)
        host = await self._context.engine.info()
        self._disk.check(host.data_root)
        containers = await self._ports.published()
        if any(container.name == wanted.name for container in containers):
            raise name_taken(wanted.name)
        app = self._complete(wanted, containers, created_at=rfc3339(now))
        check_fits_host(app, host)
        self.check_size(app)
        self._room.check_memory(app, host, self._context.defaults.overcommit_percent)
        return app

    def check_size(self, app: App) -> None:
        """Reject an app that is too large, by itself or beside others; InvalidApp, TooManyApps."""
        check_label_size(app)
        self._room.check(app)

    async def check_memory(self, app: App) -> None:
        """Reject an app that is promised no memory yet, if there is too little; MemoryPromised."""
        host = await self._context.engine.info()
        self._room.check_memory(app, host, self._context.defaults.overcommit_percent)

    def _check_allowed(self, values: Mapping[str, Any]) -> None:
        check_allowed_command(
            values.get("command", ()),
            values.get("health"),
            allowed=self._context.defaults.allow_command,
        )
        check_allowed_data(values.get("data", ()), self._context.defaults.allowed_data)

    def _complete(self, wanted: NewApp, containers: list[Container], *, created_at: str) -> App:
        values = given_values(wanted)
        asked = [port for field in ("ssh_port", "http_port") if (port := values.get(field))]
        for port in asked:
            self._ports.check(wanted.name, port, containers, None)
        for field in ("ssh_port", "http_port"):
            if not values.get(field):
                values[field] = self._ports.pick(wanted.name, containers, asked)
                asked.append(values[field])
        limits = {"cpu": self._context.defaults.cpu, "memory": self._context.defaults.memory}
        return App(**{**limits, **values}, created_at=created_at)

    async def changed_app(
        self,
        app: App,
        changes: AppChanges,
        *,
        container: Container | None,
        picked_ports_only: bool,
    ) -> App:
        """Return the app as valid changes make it; its ``container`` holds its present ports.

        Raises:
            InvalidApp, ImageNotAllowed, PortInUse, PortForbidden, MemoryPromised, TooManyApps: it
                cannot be changed so.

        """
        target = msgspec.structs.replace(app, **given_values(changes))
        if target.image != app.image:
            await self.check_image(target.image)
            target = msgspec.structs.replace(target, image_id=None, image_digest=None)
        host = await self._check_change(app, target, container, picked_ports_only=picked_ports_only)
        if target.memory > app.memory:
            self._room.check_memory(target, host, self._context.defaults.overcommit_percent)
        return target

    async def rolled_back_app(
        self,
        app: App,
        revision: Revision,
        *,
        container: Container | None,
        picked_ports_only: bool,
    ) -> App:
        """Return the app with the fields and the image of a revision, checked as a change is.

        Raises:
            InvalidApp, ImageNotAllowed, PortInUse, PortForbidden, TooManyApps: it cannot be
                brought back.

        """
        await self.check_image(revision.image)
        fields = [field for field, kind in FIELD_KINDS.items() if kind is not FieldKind.FIXED]
        target = msgspec.structs.replace(
            app, **{field: getattr(revision, field) for field in fields}
        )
        # An unknown image is that of the app, if the reference is the same.
        if revision.image_id is not None or revision.image != app.image:
            target = msgspec.structs.replace(
                target, image_id=revision.image_id, image_digest=revision.digest
            )
        await self._check_change(app, target, container, picked_ports_only=picked_ports_only)
        return target

    async def _check_change(
        self, app: App, target: App, container: Container | None, *, picked_ports_only: bool
    ) -> EngineInfo:
        values = {field: getattr(target, field) for field in FIELD_KINDS}
        self._check_allowed(
            {field: value for field, value in values.items() if value != getattr(app, field)}
        )
        host = await self._context.engine.info()
        check_fits_host(target, host, before=app)
        self.check_size(target)
        new_ports = {target.ssh_port, target.http_port} - {app.ssh_port, app.http_port}
        if picked_ports_only:
            self._check_picked(new_ports)
            check_given_up_ports(app, target)
        if new_ports:
            containers = await self._ports.published()
            for port in sorted(new_ports):
                self._ports.check(app.name, port, containers, container.id if container else None)
        return host

    def _check_picked(self, ports: Iterable[int]) -> None:
        allowed = self._context.defaults.ports
        for port in sorted(ports):
            if port not in allowed:
                raise PortForbidden(
                    f"port {port} is none of {allowed[0]}-{allowed[-1]} (`apps.ports`), from which"
                    " a key for some apps chooses; name one of these, or 0 for a free one"
                )

    async def check_image(self, reference: str) -> None:
        """Reject an image that the settings do not allow; ImageNotAllowed.

        One that the engine finds by its id, or by the beginning of that, is known by its names on
        this host.
        """
        allowed = self._context.defaults.allowed_images
        if allowed is None:
            return
        image = await self._context.engine.image(reference)
        known = [] if image is None else [*image.tags, *image.digests]
        names = known if _is_found_by_id(reference, image, known) else [reference]
        if not any(normal_name(name).startswith(allowed) for name in names):
            raise ImageNotAllowed(
                f"the image `{reference}` is not allowed; `apps.allowed_images` of this agent"
                f" allows {' '.join(allowed) or 'nothing'}"
            )

    async def check_kept_data(self, app: App, volumes: int) -> None:
        """Check that so many volumes may be kept when an app is deleted; TooMuchKeptData."""
        found = await self._context.engine.volumes(label=APP_LABEL)
        kept = Counter(
            labels[APP_LABEL]
            for labels in found.values()
            if self._context.ownership.owns_volume(labels)
            and self._context.repository.find(labels[APP_LABEL]) is None
        )
        self._room.check_kept_data(app.name, volumes, kept)

    async def check_disk(self) -> None:
        """Check that no disk is nearly full before data is added; DiskFull."""
        self._disk.check((await self._context.engine.info()).data_root)


def _is_found_by_id(reference: str, image: Image | None, known: Collection[str]) -> bool:
    """Return whether the engine takes a reference for the id of an image, or its beginning."""
    if image is None or is_image_id(reference):
        return is_image_id(reference)
    is_named = full_reference(reference) in map(full_reference, known)
    return not is_named and image.id.removeprefix("sha256:").startswith(reference)


def name_taken(name: str) -> NameTaken:
    """Return the error that another container has the name of an app."""
    return NameTaken(
        f"there is a container `{name}` that is not the agent's; it is left alone, so choose"
        " another name, or rename that container; if it is an app of another agent that is gone,"
        " `rollcall-agent adopt` shows how to take it over"
    )
