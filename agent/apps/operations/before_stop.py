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
    EngineRejected,
    NetworkNotFound,
    ObjectNotFound,
    PortsNotPublished,
)
from agent.engine.models import Container, ContainerSpec, InspectedContainer
from agent.journal import JournalEntry, ReplaceEntry, StartEntry
from agent.model import App

EntryT = TypeVar("EntryT", bound=JournalEntry)
RestartT = TypeVar("RestartT", StartEntry, ReplaceEntry)

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
    if entry.withdrawn_at is None or not entry.target.drain_seconds:  # no drain goes on
        await _check(host, entry.target, following)
    entry = await drain(host, job, entry, entry.target, container)
    if entry.target.drain_seconds:
        await _check(host, entry.target, following)
    return entry


async def _check(host: Host, app: App, following: str | None) -> None:
    """Raise an error if there is no room, or if the container ``following`` could not be started.

    Whether ports are published, as not after a flush of the firewall, only the engine can tell. It
    publishes a free port of a container that has none of its program: nothing of the image runs,
    and the app's own ports are still those of the old container.
    """
    await host.images.unneeded.make_room()
    if following is None:
        return
    engine = host.context.engine
    container = await engine.inspect(following)
    await host.containers.reconnect(container)
    # Newer engines publish after they have made the process, so there is one: the engine's own.
    probe = _probe(host, app, container, init=(await engine.info()).init)
    host.data.in_use.add(probe.name)
    try:
        container_id = await engine.create(probe)
        try:
            await engine.start(container_id)
        finally:
            with suppress(ObjectNotFound):
                await engine.remove(container_id)
    except PortsNotPublished as error:
        raise StartFailed(
            f"app `{app.name}` was not stopped, since it could not be started again: {error};"
            f" {RESTART_ENGINE}"
        ) from error
    except (DiskFull, NetworkNotFound):
        raise
    except EngineRejected as error:  # whatever else it lacks, such as a program
        host.context.log.debug("container without a program not started", reason=str(error))
    finally:
        host.data.in_use.discard(probe.name)


def _probe(host: Host, app: App, following: InspectedContainer, *, init: bool) -> ContainerSpec:
    defaults = host.context.defaults
    return ContainerSpec(
        name=f"{app.name}.PORTS-{secrets.token_hex(4)}",
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
        init=init,
        no_new_privileges=True,
        entrypoint=NO_PROGRAM,
        fill_volumes=False,
        network=None if following.network == "default" else following.network,
        autostart=False,
    )
