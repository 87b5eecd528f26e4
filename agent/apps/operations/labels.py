"""Adding and removing labels of an app: only the record changes."""

import msgspec

from agent.apps.admission.fields import (
    MAX_APP_LABELS,
    check_label,
    check_target_port,
    excerpt,
)
from agent.apps.errors import InvalidApp, LabelNotFound
from agent.apps.host import Host
from agent.apps.requests import AddLabel, RemoveLabel
from agent.apps.runner.job import Job
from agent.model import App


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
