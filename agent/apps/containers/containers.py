"""The containers of apps: making, finding, starting, stopping and removing them."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec

from agent.apps.admission.ports import Ports
from agent.apps.containers.network import AppsNetwork
from agent.apps.containers.own_calls import (
    PAUSE,
    REMOVE,
    START,
    STOP,
    UNPAUSE,
    UPDATE,
    OwnCalls,
)
from agent.apps.containers.passwords import Passwords
from agent.apps.containers.readiness import STABLE_STATES, Readiness, Requirement, wrong_cpu
from agent.apps.containers.spec import (
    build_container_spec,
    check_image,
    lost_note,
    stop_seconds,
    unknown_user,
    with_note,
)
from agent.apps.containers.volumes import Volumes
from agent.apps.context import AgentContext
from agent.apps.errors import InvalidApp, NoSuchUser, StartFailed
from agent.apps.labels import APP_LABEL, OPERATION_LABEL, app_from_label
from agent.engine.errors import (
    DiskFull,
    EngineConflict,
    EngineRejected,
    HostPortInUse,
    InvalidParameter,
    NameInUse,
    NetworkNotFound,
    NoCommand,
    ObjectNotFound,
    PortsNotPublished,
)
from agent.engine.logins import digest_of
from agent.engine.models import Container, ContainerSpec, Image, InspectedContainer
from agent.journal import CreateEntry, JournalEntry, ReplaceEntry
from agent.model import App, with_image

RESTART_ENGINE = "restart the container engine, which restores its firewall rules"
UP_STATES = frozenset({"running", "restarting", "paused"})
# The engine is removing it, or failed to: nothing else can be done with it.
GONE_STATES = frozenset({"removing", "dead"})
# The id of a container that is not made: those of the engine are hexadecimal.
NOT_MADE = "not-made"


def do_nothing() -> None:
    """End no wait."""


class Containers:
    """The containers of this agent's apps.

    Every method may raise EngineUnavailable; then it is unknown what happened.
    """

    def __init__(
        self, context: AgentContext, volumes: Volumes, passwords: Passwords, ports: Ports
    ) -> None:
        self.network = AppsNetwork(context)
        self.calls = OwnCalls(context.clock)
        self._context = context
        self._volumes = volumes
        self._passwords = passwords
        self.ports = ports
        self._readiness = Readiness(context)

    async def of_app(self, app: str) -> list[Container]:
        """List the containers labelled with an app that are this agent's."""
        found = await self._context.engine.containers(label=f"{APP_LABEL}={app}")
        return await self._context.ownership.own(found)

    async def read_app(self, container: InspectedContainer, **fields: Any) -> App:
        """Return the app of a container: as its labels have it, and with these fields.

        A volume in its map that is not this agent's, or is another app's, is left out.

        Raises:
            msgspec.MsgspecError: a label cannot be read.

        """
        app = app_from_label(container, **fields)
        volumes = await self._volumes.ours(app.name, app.volumes)
        return msgspec.structs.replace(app, volumes=volumes)

    async def current(self, app: App) -> InspectedContainer | None:
        """Inspect the app's container; None if it is gone, or about to be.

        Raises:
            AppOfAnother: another agent has adopted it.

        """
        if app.container_id is None:
            return None
        try:
            seen = await self._context.engine.inspect(app.container_id)
        except ObjectNotFound:
            return None
        await self._context.ownership.check(app.name, seen)
        return seen if seen.state not in GONE_STATES else None

    async def create(self, entry: CreateEntry | ReplaceEntry, image: Image) -> tuple[App, str]:
        """Create the container of the entry's target, beside any other that the app has.

        Its volumes are created first: one that the engine creates by itself would lack our labels.
        A container that the operation has made before, and whose answer was lost, is used.

        Returns:
            The app with its map of volumes and its image, and the container's id.

        Raises:
            NameTaken: a volume of a name that is needed is not ours.
            InvalidApp: there is no program to run.
            UnfitImage: the image cannot be used for apps.
            NameInUse: another container has the name.
            NetworkUnfit: the network of apps does not isolate them.
            AppOfAnother: another agent has adopted the identity of this one.

        """
        target, lost = self._target(entry, image), await self._volumes.lost(entry)
        if lost:
            self._context.log.warning(
                "volumes of an app are gone, and are made again", app=entry.app, of=lost
            )
        app = await self._volumes.prepare(msgspec.structs.replace(entry, target=target), image)
        spec = await self._spec(app, entry, image, network=await self.network.prepare())
        spec = with_note(spec, lost_note(lost))
        try:
            container_id = await self._create(entry, spec, image)
        except NoCommand as error:
            raise InvalidApp(
                f"the image `{app.image}` names no program to run; set `command`"
            ) from error
        new = self._volumes.made_empty(entry, spec.volumes) if image.user else []
        if new and not await self._context.engine.give(container_id, new, image.user):
            await self.remove(container_id)
            container_id = await self._create(entry, with_note(spec, unknown_user(image)), image)
        return app, container_id

    async def preview(
        self, entry: CreateEntry | ReplaceEntry, image: Image
    ) -> tuple[App, InspectedContainer]:
        """Return the app and the container that ``create`` would make, as far as it is known.

        Nothing is made. Errors as of ``create``.
        """
        target, lost = self._target(entry, image), await self._volumes.lost(entry)
        app, _ = await self._volumes.plan(target, image)
        network = await self.network.find()
        spec = with_note(await self._spec(app, entry, image, network=network), lost_note(lost))
        return app, InspectedContainer(
            id=NOT_MADE,
            name=app.name,
            image=spec.image,
            image_id=image.id,
            state="created",
            labels=spec.labels,
            network=spec.network or "default",
            started_at=None,
            finished_at=None,
            exit_code=None,
            restarts=0,
            oom_killed=False,
            error="",
            env=spec.env,
            cpu=spec.cpu,
            memory=spec.memory,
            volumes=spec.volumes,
            autostart=spec.autostart,
        )

    def _target(self, entry: CreateEntry | ReplaceEntry, image: Image) -> App:
        """Return the app with an image, which fits."""
        self._context.ownership.check_agent()
        check_image(image, entry.target.image)
        # The server of the record's reference: others may have the same image.
        known = with_image(entry.target, image.id).image_digest
        digest = known or digest_of(entry.target.image, image.digests)
        return msgspec.structs.replace(entry.target, image_id=image.id, image_digest=digest)

    async def _spec(
        self,
        app: App,
        entry: CreateEntry | ReplaceEntry,
        image: Image,
        *,
        network: str | None,
    ) -> ContainerSpec:
        # The name of an app has no capital letters, so no other app has this one.
        beside = f"{entry.app}.NEXT-{entry.id[:8]}"
        return build_container_spec(
            app,
            entry.id,
            name=entry.app if isinstance(entry, CreateEntry) else beside,
            image=image,
            host=await self._context.engine.info(),
            agent=self._context.ownership.agent,
            network=network,
            defaults=self._context.defaults,
        )

    async def _create(self, entry: JournalEntry, spec: ContainerSpec, image: Image) -> str:
        """Create a container of this image: by the reference, or by the id if the tag has moved."""
        here = await self._context.engine.image(spec.image)
        if here is None or here.id != image.id:
            spec = replace(spec, image=image.id)
        try:
            container_id = await self._context.engine.create(spec)
        except NameInUse:
            made = [each for each in await self.made_by(entry) if each.name == spec.name]
            if not made:
                raise
            container_id = made[0].id
        seen = None if spec.image == image.id else await self._context.engine.inspect(container_id)
        if seen is None or seen.image_id == image.id:
            return container_id
        await self.remove(container_id)  # the tag has moved just now
        return await self._create(entry, replace(spec, image=image.id), image)

    async def made_by(self, entry: JournalEntry) -> list[Container]:
        """List the containers that an operation made."""
        return [
            each
            for each in await self.of_app(entry.app)
            if each.labels.get(OPERATION_LABEL) == entry.id
        ]

    async def remove_made_by(self, entry: JournalEntry) -> None:
        """Remove the containers that an operation made."""
        for container in await self.made_by(entry):
            await self.remove(container.id)

    async def undo(self, entry: JournalEntry) -> None:
        """Remove all that an operation made, volumes included."""
        await self.remove_made_by(entry)
        await self._volumes.undo(entry)

    async def undo_or_stop(self, entry: JournalEntry) -> None:
        """Remove all that an operation made; stop what the engine fails to remove."""
        try:
            await self.undo(entry)
        except EngineRejected as error:
            self._context.log.warning("container not removed yet", app=entry.app, reason=str(error))
            for container in await self.made_by(entry):
                await self.stop(container)

    async def remove(self, container_id: str) -> None:
        """Remove a container, if it is there."""
        with suppress(ObjectNotFound), self.calls.call(container_id, REMOVE):
            await self._context.engine.remove(container_id)

    async def remove_or_stop(self, container_id: str) -> str | None:
        """Remove a container, if it is there; stop it if the engine fails to remove it.

        Returns:
            None, or the id of the operation that made the container which is only stopped.

        """
        try:
            await self.remove(container_id)
        except EngineRejected as error:
            with suppress(ObjectNotFound):
                container = await self._context.engine.inspect(container_id)
                app = container.labels.get(APP_LABEL)
                self._context.log.warning("container not removed yet", app=app, reason=str(error))
                await self.stop(container)
                return container.labels.get(OPERATION_LABEL)
        return None

    async def set_autostart(self, container: Container, *, enabled: bool) -> None:
        """Set whether the engine starts a container by itself; EngineRejected."""
        with self.calls.call(container.id, UPDATE):
            await self._context.engine.set_autostart(container.id, enabled=enabled)

    async def remove_volumes(self, app: str, names: Collection[str]) -> None:
        """Remove volumes that an app has no longer; what a container still uses stays."""
        try:
            await self._volumes.remove(app, names)
        except EngineConflict as error:
            self._context.log.warning(
                "old volume not removed: it is in use", app=app, reason=str(error)
            )

    async def stop(self, container: Container, target: App | None = None) -> None:
        """Stop a container, paused or not, if it is there; kill it after ``stop_seconds``.

        They are those of its app as it is, or as it will be: ``target``.
        """
        app = target or self._context.ownership.app_of(container)
        seconds = (
            stop_seconds(app, self._context.defaults)
            if app
            else self._context.defaults.stop_seconds
        )
        with suppress(ObjectNotFound), self.calls.call(container.id, STOP):
            await self._context.engine.stop(container.id, seconds)

    async def stop_for_good(self, container: Container) -> None:
        """Stop a container as above, and keep the engine from starting it by itself.

        If the engine fails to note that, such as on a full disk, the agent tries again later.
        """
        await self.stop(container)
        try:
            with suppress(ObjectNotFound):
                await self.set_autostart(container, enabled=False)
        except EngineRejected as error:
            app = container.labels.get(APP_LABEL)
            self._context.log.warning("restart policy not changed yet", app=app, reason=str(error))

    async def pause(self, container: Container) -> None:
        """Pause a container; EngineConflict."""
        with self.calls.call(container.id, PAUSE):
            await self._context.engine.pause(container.id)

    async def unpause(self, container: Container) -> None:
        """Unpause a container."""
        with self.calls.call(container.id, UNPAUSE):
            await self._context.engine.unpause(container.id)

    async def rename(self, container_id: str, name: str) -> bool:
        """Rename a container, if it is there; return False if another one holds the name."""
        with suppress(ObjectNotFound):
            if not await self._has_name(container_id, name):
                try:
                    await self._context.engine.rename(container_id, name)
                except (NameInUse, InvalidParameter):
                    # The engine may carry out an earlier request late, and rejects this one then.
                    return await self._has_name(container_id, name)
        return True

    async def _has_name(self, container_id: str, name: str) -> bool:
        return (await self._context.engine.inspect(container_id)).name == name

    async def limit(self, container_id: str, limits: App) -> None:
        """Set the limits of an app in a container, running or not, if it is there."""
        with suppress(ObjectNotFound), self.calls.call(container_id, UPDATE):
            await self._context.engine.limit(container_id, cpu=limits.cpu, memory=limits.memory)

    async def used_memory(self, container_id: str) -> int | None:
        """Return the bytes of memory that a container uses, None where they are unknown."""
        sample = await self._context.engine.sample(container_id, priority=True)
        return sample.memory_bytes if sample is not None else None

    async def start(
        self,
        app: App,
        container_id: str,
        *,
        set_password: bool,
        requirement: Requirement = Requirement.START,
        overdue: Callable[[], None] = do_nothing,
    ) -> App:
        """Start the app's container, and set the app's password in it if it does not have it.

        ``overdue`` may raise to end a wait that takes longer than most apps need.

        Returns:
            The app as it is then.

        Raises:
            StartFailed: it does not start, or does not settle as ``requirement`` demands.
            PortInUse: one of its ports is held by another.
            NoSuchUser: its password cannot be set.

        """
        container = await self._context.engine.inspect(container_id)
        # The engine may have restarted a running container before; only later restarts count.
        restarts = container.restarts if container.state in STABLE_STATES else 0
        await self._start(app, container)
        password = app.password if set_password else None
        if password is not None:
            with suppress(EngineConflict):  # it ended at once; checked below
                await self._passwords.apply(container, password)
                password = None
        await self._readiness.wait(
            app, container_id, restarts=restarts, requirement=requirement, overdue=overdue
        )
        if password is not None:
            await self._passwords.apply(container, password)
        return started(app, container_id)

    async def start_again(self, app: App, container: Container) -> App:
        """Start an app's present container, and set a password that it does not have yet.

        Errors are raised as by ``start``, but none of the password, which keeps no app from
        running. Return the app as it is then.
        """
        after = await self.start(app, container.id, set_password=False)
        if not app.password_pending:
            return after
        pending = msgspec.structs.replace(after, password_pending=True)
        try:
            return await self._passwords.set_pending(pending, container)
        except NoSuchUser as error:
            return await self._passwords.drop(pending, container, error)

    async def _start(self, app: App, container: InspectedContainer) -> None:
        try:
            await self.start_unchecked(container)
        except HostPortInUse as error:
            raise await self.ports.in_use(app, error) from error
        except NetworkNotFound as error:
            raise _cannot_start(app, error) from error
        except (DiskFull, ObjectNotFound):
            raise
        except PortsNotPublished as error:
            raise StartFailed(
                f"app `{app.name}` cannot be started: {error}; {RESTART_ENGINE}"
            ) from error
        except EngineRejected as error:
            other = await wrong_cpu(self._context.engine, container.image_id)
            remedy = other or "change its `image` or `command`"
            raise StartFailed(f"app `{app.name}` cannot be started: {error}; {remedy}") from error

    async def start_unchecked(self, container: InspectedContainer) -> None:
        """Start a container; the engine starts it again when it ends, and at its own start.

        One that somebody has disconnected from its network is connected again.
        """
        await self.reconnect(container)
        if not container.autostart:
            await self.set_autostart(container, enabled=True)
        with self.calls.call(container.id, START, grace_seconds=0), _network_needed():
            await self._context.engine.start(container.id)

    async def check_start(self, app: App, container: Container) -> None:
        """Check that a container can be started now.

        Raises:
            PortInUse, StartFailed: as of ``start``, as far as that can be known.

        """
        await self.ports.check_free(app)
        try:
            await self.check_network(container)
        except NetworkNotFound as error:
            raise _cannot_start(app, error) from error

    async def check_network(self, container: Container) -> None:
        """Reject a container whose network was removed; NetworkNotFound."""
        lost = container.lost_network
        if lost is not None and await self._context.engine.network(lost) is None:
            raise _network_removed(f"network {lost} not found")

    async def reconnect(self, container: Container) -> None:
        """Connect a container to its network, unless it is; NetworkNotFound."""
        if container.lost_network is not None:
            with _network_needed():
                await self._context.engine.connect(container.id, container.lost_network)


def started(app: App, container_id: str) -> App:
    """Return an app after the start of its container."""
    return msgspec.structs.replace(
        app, container_id=container_id, password_pending=False, message=None, down=None
    )


def _cannot_start(app: App, reason: Exception) -> StartFailed:
    return StartFailed(f"app `{app.name}` cannot be started: {reason}")


@contextmanager
def _network_needed() -> Iterator[None]:
    try:
        yield
    except NetworkNotFound as error:
        raise _network_removed(str(error)) from error


def _network_removed(reason: str) -> NetworkNotFound:
    return NetworkNotFound(
        f"the network of its container was removed ({reason}); rebuild the app, so that its"
        " container is made anew"
    )
