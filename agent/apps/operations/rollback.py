"""Bringing an app back to one of its revisions, which makes a new revision.

The container is replaced only if that takes another one, or if it is gone. Data, labels and
password stay. An interrupted operation is recovered as the update that it is.
"""

import msgspec

from agent.apps.errors import (
    InvalidApp,
    NoRevisionBefore,
    PortInUse,
    RevisionNotFound,
    RollbackRejected,
)
from agent.apps.host import Host
from agent.apps.operations.update import kinds_of_change, planned_change
from agent.apps.requests import Rollback
from agent.apps.runner.job import Job
from agent.apps.runner.runner import Plan
from agent.engine.models import InspectedContainer
from agent.model import App, FieldKind, spec_values
from agent.state.history import MOST_REVISIONS, Revision


async def plan_rollback(host: Host, job: Job, request: Rollback) -> Plan:
    """Plan to bring an app back to a revision.

    Raises:
        RevisionNotFound, NoRevisionBefore: there is none.
        RollbackRejected: the host or the settings do not allow it any more.
        PortForbidden: the key may not give the app the ports of the revision.
        MemoryInUse, AppError, EngineError: as of an update.

    """
    app = host.context.repository.get(job.app)
    revision = await _revision(host, app, request.number)
    job.header = msgspec.structs.replace(
        job.header, revision=revision.revision, reason=f"back to revision {revision.revision}"
    )
    job.needed_image = revision.image_id or revision.image
    # The image must not be removed to make room on the disk. Later, the entry needs it.
    async with host.images.use.needed(job.needed_image):
        container = await host.containers.current(app)
        kinds = _kinds(app, revision, container)
        if not kinds:
            return None
        if FieldKind.REPLACING in kinds:
            await host.admission.check_disk()
        target = await _target(
            host, app, revision, container, picked_ports_only=job.picked_ports_only
        )
        return await planned_change(host, job, target, container, kinds)


async def _revision(host: Host, app: App, number: int | None) -> Revision:
    kept = f"GET /v1/apps/{app.name}/history lists those that are kept"
    if number is None:
        present = app.revision or 0
        before = [
            each for each in host.context.repository.revisions.numbers(app.name) if each < present
        ]
        if not before:
            raise NoRevisionBefore(f"app `{app.name}` has no revision before this one; {kept}")
        number = before[-1]
    for revision in await host.context.repository.store.revisions(app.name):
        if revision.revision == number:
            return revision
    raise RevisionNotFound(
        f"app `{app.name}` has no revision {number}; {kept}, the last {MOST_REVISIONS}"
    )


async def _target(
    host: Host,
    app: App,
    revision: Revision,
    container: InspectedContainer | None,
    *,
    picked_ports_only: bool,
) -> App:
    try:
        return await host.admission.rolled_back_app(
            app, revision, container=container, picked_ports_only=picked_ports_only
        )
    except PortInUse as error:
        raise _rejected(app, revision, f"{error.fact}; free that port") from error
    except InvalidApp as error:
        raise _rejected(app, revision, str(error)) from error


def _rejected(app: App, revision: Revision, reason: str) -> RollbackRejected:
    return RollbackRejected(
        f"app `{app.name}` cannot go back to revision {revision.revision}: {reason}; or update"
        f" the app to the other fields of that revision"
    )


def _kinds(app: App, revision: Revision, container: InspectedContainer | None) -> set[FieldKind]:
    """Return the kinds of what differs between a revision and the app or its container."""
    kinds = kinds_of_change(spec_values(revision), app, container)
    if container is None or revision.image_id not in (None, container.image_id):
        kinds.add(FieldKind.REPLACING)
    return kinds
