"""What comes before a stop: an app is withdrawn from load balancers, and what is to run is checked.

An app that serves is not stopped where its container could not be started after that.
"""

import secrets
from contextlib import suppress
from typing import TypeVar

import msgspec

from agent.apps.containers.containers import RESTART_ENGINE
from agent.apps.errors import StartFailed
from agent.apps.host import Host
from agent.apps.labels import container_labels
from agent.apps.runner.job import Job
from agent.engine.errors import (
    DiskFull,
    EngineRefused,
    NetworkNotFound,
    ObjectNotFound,
    PortsNotPublished,
)
from agent.engine.models import Container, ContainerSpec, InspectedContainer
from agent.journal import JournalEntry, ReplaceEntry, StartEntry
from agent.model import App

EntryT = TypeVar("EntryT", bound=JournalEntry)
RestartT = TypeVar("RestartT", StartEntry, ReplaceEntry)

CANNOT_RUN = (DiskFull, NetworkNotFound, PortsNotPublished)
# No image has it.
NO_PROGRAM = "/.rollcall-no-program"


async def drain(host: Host, job: Job, entry: EntryT, app: App, container: Container) -> EntryT:
    """Withdraw an app from load balancers, and wait ``drain_seconds``; return the entry.

    An interrupted operation waits for the remaining seconds, and none for an app that is down.

    Raises:
        AgentStopping: the operation stays in the journal.

    """
    if entry.withdrawn_at is None:
        entry = msgspec.structs.replace(entry, withdrawn_at=host.context.clock())
        await host.context.repository.advance(entry)
    host.context.on_change()
    if container.state == "running" and entry.withdrawn_at is not None:
        passed = max(0.0, host.context.clock() - entry.withdrawn_at)
        await job.drain(app.drain_seconds - passed)
    return entry


async def check_and_drain(
    host: Host, job: Job, entry: RestartT, container: Container, following: str | None
) -> RestartT:
    """Drain an app that is to be stopped, unless the container that is to run then could not.

    ``following`` is its id, None if none is to run. What was right before a drain of an hour is
    checked again after it.

    Raises:
        DiskFull, NetworkNotFound, StartFailed: it could not.
        AgentStopping: the operation stays in the journal.

    """
    await _check(host, entry.target, following)
    entry = await drain(host, job, entry, entry.target, container)
    if entry.target.drain_seconds:
        await _check(host, entry.target, following)
    return entry


async def _check(host: Host, app: App, following: str | None) -> None:
    await host.images.unneeded.make_room()
    if following is not None:
        container = await host.context.engine.inspect(following)
        await host.containers.reconnect(container)
        await _check_ports(host, app, container)


async def _check_ports(host: Host, app: App, following: InspectedContainer) -> None:
    """Raise StartFailed if the engine publishes no ports, as after a flush of the firewall.

    Only the engine can tell. It publishes a free port of a container that has none of its program:
    nothing of the image runs, and the app's own ports are still those of the old container.
    """
    name = f"{app.name}.PORTS-{secrets.token_hex(4)}"
    host.data.in_use.add(name)
    try:
        await _publish(host, name, following)
    except PortsNotPublished as error:
        raise StartFailed(
            f"app `{app.name}` was not stopped, since it could not be started again: {error};"
            f" {RESTART_ENGINE}"
        ) from error
    finally:
        host.data.in_use.discard(name)


async def _publish(host: Host, name: str, following: InspectedContainer) -> None:
    engine, defaults = host.context.engine, host.context.defaults
    spec = ContainerSpec(
        name=name,
        image=following.image_id,
        labels=container_labels(agent=host.context.ownership.agent, helps=True),
        env={},
        ports=((defaults.http_port, 0),),
        bind=defaults.bind,
        cpu=100,
        memory=64,
        pids=16,
        log_mib=1,
        stop_seconds=0,
        volumes=following.volumes,
        # Newer engines publish after they have made the process, so there is one: the engine's own.
        init=(await engine.info()).init,
        no_new_privileges=True,
        entrypoint=NO_PROGRAM,
        fill_volumes=False,
        network=None if following.network == "default" else following.network,
        autostart=False,
    )
    try:
        container_id = await engine.create(spec)
        try:
            await engine.start(container_id)
        finally:
            with suppress(ObjectNotFound):
                await engine.remove(container_id)
    except CANNOT_RUN:
        raise
    except EngineRefused as error:  # whatever else it lacks, such as a program
        host.context.log.debug("container without a program not started", reason=str(error))
