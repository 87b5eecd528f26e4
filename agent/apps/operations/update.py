"""Updating an app and its labels: only its record, or its container, where no other is needed."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from agent.apps.admission.fields import (
    MAX_APP_LABELS,
    check_changes,
    check_label,
    check_target_port,
    excerpt,
)
from agent.apps.containers.containers import UP_STATES
from agent.apps.errors import InvalidApp, LabelNotFound, MemoryInUse
from agent.apps.host import Host
from agent.apps.operations.replace import planned_replacement
from agent.apps.requests import AddLabel, RemoveLabel, Update
from agent.apps.runner.job import Job
from agent.apps.runner.runner import Plan
from agent.engine.errors import EngineRejected
from agent.engine.models import MIB, InspectedContainer
from agent.journal import LimitsEntry
from agent.model import (
    FIELD_KINDS,
    App,
    FieldKind,
    given_values,
    with_image,
    with_whole_env,
)


def kinds_of_change(
    given: Mapping[str, Any], app: App, container: InspectedContainer | None
) -> set[FieldKind]:
    """Return the kinds of the fields that differ in the app or in its container."""
    kinds = {FIELD_KINDS[field] for field, value in given.items() if value != getattr(app, field)}
    live = [field for field in given if FIELD_KINDS[field] is FieldKind.LIVE]
    if container is not None and any(given[field] != getattr(container, field) for field in live):
        kinds.add(FieldKind.LIVE)  # others have changed the limits of the container
    return kinds


async def plan_update(host: Host, job: Job, request: Update) -> Plan:
    """Plan changes of the fields of an app.

    Raises:
        InvalidApp, MemoryInUse: they cannot be made.
        AppError, EngineError: as of ``planned_replacement``, if a field needs another container.

    """
    app, changes = host.context.repository.get(job.app), request.changes
    check_changes(changes)
    changes = with_whole_env(changes, app.env)
    check_changes(changes)  # with the other variables, the environment may be too large
    container = await host.containers.current(app)
    kinds = kinds_of_change(given_values(changes), app, container)
    if not kinds:
        return None
    replaces = container is not None and FieldKind.REPLACING in kinds
    if replaces:
        await host.admission.check_disk()
    target = await host.admission.changed_app(
        app, changes, container=container, picked_ports_only=job.picked_ports_only
    )
    if container is None:
        return target  # the next container is made from it
    if replaces and target.image == app.image:
        target = with_image(target, container.image_id)
    return await planned_change(host, job, target, container, kinds)


async def planned_change(
    host: Host,
    job: Job,
    target: App,
    container: InspectedContainer | None,
    kinds: Collection[FieldKind],
) -> Plan:
    """Return what brings an app to ``target``, as the kinds of change require.

    One without a container gets another. Nothing is awaited after the check of the ports.
    """
    if container is None or FieldKind.REPLACING in kinds:
        return await planned_replacement(host, job, target, container)
    if FieldKind.LIVE not in kinds:
        return target
    # Others may have changed the limit of the container, or removed it: it is 0 then.
    is_less = not container.memory or target.memory < container.memory
    if is_less and container.state in UP_STATES:
        await _check_memory(host, target, container.id)
    return LimitsEntry(
        header=job.header,
        before=host.context.repository.get(job.app),
        target=target,
        container_id=container.id,
        cpu=container.cpu,
        memory=container.memory,
    )


async def _check_memory(host: Host, target: App, container_id: str) -> None:
    used = await host.containers.used_memory(container_id)
    if used is not None and used > target.memory * MIB:
        raise MemoryInUse(
            f"app `{target.name}` uses {used // MIB} MiB now and would be killed"
            f" with {target.memory} MiB; stop it first, or leave it more"
        )


async def carry_out_limits(host: Host, _job: Job, entry: LimitsEntry) -> None:
    """Set the new limits; if the engine rejects, those that the container had. MemoryInUse."""
    try:
        await host.containers.limit(entry.container_id, entry.target)
    except EngineRejected as error:
        await _restored(host, entry)
        await host.context.repository.finish(entry, entry.before, error=error)
        raise MemoryInUse(
            f"the limits cannot be changed at present: {error}; stop the app first"
        ) from error
    await host.context.repository.finish(entry, entry.target)


async def _restored(host: Host, entry: LimitsEntry) -> None:
    before = entry.before
    limits = msgspec.structs.replace(
        before, cpu=entry.cpu or before.cpu, memory=entry.memory or before.memory
    )
    try:
        await host.containers.limit(entry.container_id, limits)
    except EngineRejected as error:  # an engine that rejects both has kept the limits
        host.context.log.debug("limits not restored", app=entry.app, reason=str(error))


async def plan_add_label(host: Host, job: Job, request: AddLabel) -> App | None:
    """Plan to add a label; None if the app has it.

    Raises:
        InvalidLabel, InvalidApp, PortForbidden, TooManyApps: it cannot be added.

    """
    app, label = host.context.repository.get(job.app), check_label(request.label)
    if job.picked_ports_only:
        check_target_port(label, app)
    if label in app.labels:
        return None
    if len(app.labels) >= MAX_APP_LABELS:
        raise InvalidApp(f"app `{app.name}` has {MAX_APP_LABELS} labels, and may have no more")
    target = msgspec.structs.replace(app, labels=(*app.labels, label))
    host.admission.check_size(target)
    # The response is the record, which needs the engine; without it nothing is changed.
    await host.containers.current(app)
    return target


async def plan_remove_label(host: Host, job: Job, request: RemoveLabel) -> App:
    """Plan to remove a label; InvalidLabel, LabelNotFound."""
    app, label = host.context.repository.get(job.app), check_label(request.label)
    if label not in app.labels:
        raise LabelNotFound(f"app `{app.name}` has no label {excerpt(label)}")
    await host.containers.current(app)
    return msgspec.structs.replace(app, labels=tuple(each for each in app.labels if each != label))
