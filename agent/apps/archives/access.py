"""Reading and filling the volumes of an app, through a container that is never started.

The agent has only the engine's socket, perhaps as another user than root, so the engine itself
reads and writes the files: its archives have owners, modes and links as they are. It does so in a
container of its own, made from the image that the app runs, with the volumes mounted. The engine
does nothing else with a container while it is read, so a slow client would hold up each stop and
inspect of the app's. The image is on the host in any case, and none of its programs runs.
"""

import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
)
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from agent.apps.archives.names import InwardNames, OutwardNames
from agent.apps.archives.tar import END, MalformedTar, copied
from agent.apps.containers.volumes import Volumes
from agent.apps.context import AgentContext
from agent.apps.errors import DataInUse, DataMissing, InvalidData, UnfitImage
from agent.apps.labels import HELPER_LABEL, HELPS, container_labels
from agent.engine.errors import (
    EngineRejected,
    ImageUnavailable,
    ObjectNotFound,
)
from agent.engine.models import (
    Container,
    ContainerSpec,
    Image,
)
from agent.journal import ReplaceEntry
from agent.model import App

# The volumes are mounted below a root of this name and random digits, each in a directory that is
# named by a number. An image could have a link at a path that is known before.
ROOT_PREFIX = "/.rollcall-data-"
# It is never run, but the engine makes no container without a command.
COMMAND = ("rollcall-never-started",)
Flush: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Helper:
    """A container that is never started, in which these volumes are mounted, by path of the app.

    ``root`` is the directory that their mounts are in.
    """

    id: str
    name: str
    root: str
    volumes: Mapping[str, str]


class DataAccess:
    """Reads and fills volumes. Every method may raise EngineError.

    ``flush`` waits until all that was written is on the disks. ``in_use`` are the names of the
    containers that are used at present.
    """

    def __init__(self, context: AgentContext, volumes: Volumes, flush: Flush) -> None:
        self.in_use = set[str]()
        self._flush = flush
        self._context = context
        self._volumes = volumes

    async def volumes(self, app: App) -> dict[str, str]:
        """Return the volumes of an app, by path. Raises DataMissing if one does not exist."""
        owned = self._volumes.owned(app)
        if not owned:
            raise DataMissing(f"app `{app.name}` has no volumes; rebuild it to have them made")
        for path, name in owned.items():
            # The engine would silently make one that is missing.
            if await self._context.engine.volume_labels(name) is None:
                raise DataMissing(
                    f"the volume `{name}` of {path} is gone; rebuild app `{app.name}` to have it"
                    " made again, empty"
                )
        return dict(sorted(owned.items()))

    async def check_unused(
        self,
        app: str,
        volumes: Collection[str],
        *,
        own: Collection[str | None],
        otherwise: str = "",
    ) -> None:
        """Check that volumes to replace or remove are not used; DataInUse.

        ``own`` are the ids of containers that do not matter, ``otherwise`` another way out.
        """
        for user in await self._volumes.users(volumes):
            if user.labels.get(HELPER_LABEL) == HELPS and await self._context.ownership.owns(user):
                if user.name not in self.in_use:
                    continue  # it is of an interrupted reading, and is swept
                raise DataInUse(
                    f"the data of app `{app}` is being read (GET /v1/apps/{app}/data); ask again"
                    f" when that has ended{otherwise}"
                )
            if user.id not in own:
                raise DataInUse(
                    f"the data of app `{app}` is used by container `{user.name}`; remove that"
                    f" first{otherwise}"
                )

    async def image(self, app: App, container: Container | None) -> Image:
        """Return the image that an app runs, which is on this host; ImageUnavailable."""
        image_id = container.image_id if container is not None else app.image_id
        image = await self._context.engine.image(image_id or app.image)
        if image is None:
            raise ImageUnavailable(
                f"the image of app `{app.name}` is not on this host; rebuild the app first"
            )
        return image

    async def open_to_read(self, app: App, image: Image, volumes: Mapping[str, str]) -> Helper:
        """Make a container to read volumes by; the caller closes it."""
        labels = container_labels(agent=self._context.ownership.agent, helps=True)
        return await self._open(app, image, volumes, labels)

    async def open_to_fill(
        self, entry: ReplaceEntry, image: Image, new: Mapping[str, str]
    ) -> Helper:
        """Make new volumes, by path, and a container to fill them by.

        Both are labelled with the operation, so that they go if it is undone.
        """
        await self._volumes.make(entry, new)
        agent = self._context.ownership.agent
        labels = container_labels(agent=agent, app=entry.app, operation=entry.id)
        return await self._open(entry.target, image, new, labels)

    async def _open(
        self, app: App, image: Image, volumes: Mapping[str, str], labels: Mapping[str, str]
    ) -> Helper:
        check_declared(app, image, volumes)
        root = ROOT_PREFIX + secrets.token_hex(8)
        mounts = {f"{root}/{number}": name for number, name in enumerate(volumes.values())}
        declared = {path: volumes[path] for path in image.volumes}
        # The name of an app has no capital letters, so no app has this one.
        name = f"{app.name}.DATA-{secrets.token_hex(4)}"
        self.in_use.add(name)
        try:
            container_id = await self._context.engine.create(
                _spec(name, image, labels, mounts | declared)
            )
        except BaseException:
            self.in_use.discard(name)
            raise
        return Helper(id=container_id, name=name, root=root, volumes=volumes)

    async def close(self, helper: Helper) -> None:
        """Remove a container; if that fails, ``sweep`` does it later."""
        try:
            await self._remove(helper.id)
        finally:
            self.in_use.discard(helper.name)

    async def _remove(self, container_id: str) -> None:
        with suppress(ObjectNotFound):
            await self._context.engine.remove(container_id)

    async def sweep(self) -> None:
        """Remove containers for reading that an earlier run, such as a killed one, left open."""
        open_ones = await self._context.engine.containers(label=f"{HELPER_LABEL}={HELPS}")
        for container in await self._context.ownership.own(open_ones):
            if container.name not in self.in_use:
                await self._remove(container.id)

    async def read(self, helper: Helper) -> AsyncGenerator[bytes]:
        """Yield one tar of all the volumes, in which each file is named after its path in the app.

        Sockets and devices are left out.
        """
        paths = tuple(helper.volumes)
        for number, path in enumerate(paths):
            choose = OutwardNames(path, paths).choose
            packed = self._context.engine.archive(helper.id, f"{helper.root}/{number}")
            async with aclosing(packed), aclosing(copied(packed, choose, with_end=False)) as copy:
                try:
                    async for piece in copy:
                        yield piece
                except MalformedTar as error:
                    raise EngineRejected(
                        f"the container engine's archive was interrupted: {error}"
                    ) from error
        yield END

    async def fill(self, helper: Helper, tar: AsyncIterator[bytes]) -> set[str]:
        """Unpack a tar into the volumes, durably; return the paths of the app that it has.

        Raises:
            InvalidData: it is no tar, is incomplete, cannot be unpacked, or has something in no
                path of the app.
            DiskFull: there is no room for it.
            Exception: what ``tar`` raises.

        """
        unpack = partial(self._context.engine.unpack, helper.id)
        found = await _taken(helper.volumes, helper.root, tar, unpack)
        # The former volumes are removed later, so the new ones must survive a power cut.
        await self._flush()
        return found

    async def check(self, volumes: Mapping[str, str], tar: AsyncIterator[bytes]) -> set[str]:
        """Read a tar to its end as ``fill`` does, and unpack it nowhere."""
        return await _taken(volumes, ROOT_PREFIX, tar, _dropped)


def check_declared(app: App, image: Image, volumes: Mapping[str, str]) -> None:
    """Reject an image with volumes that an app does not have; UnfitImage.

    Where nothing is mounted, the engine would make a volume without a name.
    """
    if not image.volumes <= volumes.keys():
        raise UnfitImage(
            f"the image of app `{app.name}` declares volumes that the app does not have yet;"
            " rebuild the app first"
        )


async def _taken(
    volumes: Mapping[str, str],
    root: str,
    tar: AsyncIterator[bytes],
    unpack: Callable[[AsyncIterator[bytes]], Awaitable[None]],
) -> set[str]:
    names = InwardNames(tuple(volumes), root=root)
    try:
        async with aclosing(copied(tar, names.choose)) as copy:
            await unpack(copy)
    except MalformedTar as error:
        raise InvalidData(str(error)) from error
    except EngineRejected as error:
        if type(error) is not EngineRejected:
            raise
        raise InvalidData(f"the container engine cannot unpack the tar: {error}") from error
    if not names.found:
        raise InvalidData(f"the tar has none of the app's paths: {', '.join(volumes)}")
    return names.found


async def _dropped(tar: AsyncIterator[bytes]) -> None:
    async for _ in tar:
        pass


def _spec(
    name: str, image: Image, labels: Mapping[str, str], volumes: Mapping[str, str]
) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        image=image.id,
        labels=labels,
        env={},
        ports=(),
        bind="",
        cpu=100,
        memory=64,
        pids=16,
        log_mib=1,
        stop_seconds=0,
        volumes=volumes,
        init=False,
        no_new_privileges=True,
        command=COMMAND,
        fill_volumes=False,
        autostart=False,
    )
