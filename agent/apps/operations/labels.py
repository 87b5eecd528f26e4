"""Adding and removing labels of an app: in one step, so there is no entry in the journal."""

import msgspec

from agent.apps.admission.fields import (
    MAX_APP_LABELS,
    check_label,
    check_target_port,
    excerpt,
)
from agent.apps.errors import InvalidApp, LabelNotFound
from agent.apps.host import Host
from agent.apps.runner.job import Job
from agent.model import App


async def add_label(host: Host, job: Job, label: str) -> None:
    """Add a label, unless the app has it.

    Raises:
        InvalidLabel, InvalidApp, PortForbidden, TooManyApps: it cannot be added.

    """
    check_label(label)
    app = host.context.repository.get(job.app)
    if job.picked_ports_only:
        check_target_port(label, app)
    if label in app.labels:
        return
    if len(app.labels) >= MAX_APP_LABELS:
        raise InvalidApp(f"app `{app.name}` has {MAX_APP_LABELS} labels, and may have no more")
    host.admission.check_size(msgspec.structs.replace(app, labels=(*app.labels, label)))
    await _put(host, job, app, (*app.labels, label))


async def remove_label(host: Host, job: Job, label: str) -> None:
    """Remove a label; InvalidLabel, LabelNotFound."""
    check_label(label)
    app = host.context.repository.get(job.app)
    if label not in app.labels:
        raise LabelNotFound(f"app `{app.name}` has no label {excerpt(label)}")
    await _put(host, job, app, tuple(each for each in app.labels if each != label))


async def _put(host: Host, job: Job, app: App, labels: tuple[str, ...]) -> None:
    # The response is the record, which needs the engine; without it nothing is changed.
    await host.containers.current(app)
    changed = msgspec.structs.replace(app, labels=labels)
    await host.context.repository.put(changed, outcome_of=job.header)
