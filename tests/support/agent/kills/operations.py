"""Each operation of the agent: its precondition, its request and its expected outcome."""

from dataclasses import replace
from typing import Any

import requests

from tests.support.agent.kills import by_hand
from tests.support.agent.kills.engine_proxy import PULL, Call, Fault, Moment
from tests.support.agent.kills.operation import Operation
from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.starts_and_ends import ENDS, STARTS, with_last_password
from tests.support.agent.kills.subject import ASYNC, DATA, ISOLATED, LIMITS, Subject

MORE_DATA = [*DATA, "/more"]


def _failed(subject: Subject, _: Snapshot) -> Snapshot:
    image = subject.images.crashing
    bare = replace(subject.created(), image=image, image_id=None, network=None, volumes={})
    return replace(bare, state="failed")


def _other_limits(before: Snapshot) -> dict[str, Any]:
    cpu, memory = LIMITS[1] if (before.cpu, before.memory) == LIMITS[0] else LIMITS[0]
    return {"cpu": cpu, "memory": memory}


def _other_ports(before: Snapshot) -> dict[str, Any]:
    assert before.env is not None
    env = {"VERSION": "2" if before.env["VERSION"] == "1" else "1"}
    return {"ssh_port": before.http_port, "http_port": before.ssh_port, "env": env}


def _rebuild(subject: Subject, image: str) -> requests.Response | None:
    subject.retag(image)
    return subject.ask("PUT", "/rebuild")


CREATIONS = (
    Operation(
        name="create",
        prepare=Subject.absent,
        request=lambda subject, _: subject.post(),
        expected=Subject.created,
    ),
    Operation(
        name="create, image pulled",
        prepare=Subject.absent_and_not_pulled,
        request=lambda subject, _: subject.post(subject.images.pulled),
        expected=lambda subject, _: replace(subject.created(), image=subject.images.pulled),
    ),
    Operation(
        name="create, data kept from before",
        prepare=Subject.absent_with_data,
        request=lambda subject, _: subject.post(),
        expected=lambda subject, before: replace(subject.created(), volumes=before.volumes),
    ),
    Operation(
        name="create in the background",
        prepare=Subject.absent,
        request=lambda subject, _: subject.post(headers=ASYNC),
        expected=Subject.created,
    ),
    Operation(
        name="create that fails",
        prepare=Subject.absent,
        request=lambda subject, _: subject.post(subject.images.crashing),
        expected=lambda _, before: before,
        succeeds=False,
    ),
    Operation(
        name="create in the background that fails",
        prepare=Subject.absent,
        request=lambda subject, _: subject.post(subject.images.crashing, ASYNC),
        expected=_failed,
    ),
    Operation(
        name="create in the background that fails, data kept from before",
        prepare=Subject.absent_with_data,
        request=lambda subject, _: subject.post(subject.images.crashing, ASYNC),
        expected=lambda subject, before: replace(_failed(subject, before), volumes=before.volumes),
    ),
)

ISOLATED_CREATIONS = (
    Operation(
        name="create, isolated, without the network",
        prepare=Subject.absent_without_network,
        request=lambda subject, _: subject.post(),
        expected=lambda subject, _: replace(subject.created(), network=ISOLATED),
    ),
)

MOVES = (
    Operation(
        name="move into the network of isolated apps",
        prepare=Subject.not_isolated_yet,
        request=lambda subject, _: subject.ask("PUT", "/rebuild"),
        expected=lambda _, before: replace(before, network=ISOLATED),
    ),
)

UPDATES = (
    Operation(
        name="update, live",
        prepare=Subject.running,
        request=lambda subject, before: subject.ask("PUT", "", _other_limits(before)),
        expected=lambda _, before: replace(before, **_other_limits(before)),
    ),
    Operation(
        name="update, replacing",
        prepare=Subject.running,
        request=lambda subject, before: subject.ask("PUT", "", _other_ports(before)),
        expected=lambda _, before: replace(before, **_other_ports(before)),
    ),
    Operation(
        name="update, more data",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("PUT", "", {"data": MORE_DATA}),
        expected=lambda _, before: replace(
            before, data=MORE_DATA, volumes={**before.volumes, MORE_DATA[-1]: "empty"}
        ),
    ),
    Operation(
        name="update, image pulled",
        prepare=by_hand.running_without_the_other_image,
        request=lambda subject, _: subject.ask("PUT", "", {"image": subject.images.removable}),
        expected=lambda subject, before: replace(
            before, image=subject.images.removable, image_id=by_hand.other_image(subject)
        ),
        settle=by_hand.until_no_image_is_left,
        only=PULL,
    ),
    Operation(
        name="update that fails",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask(
            "PUT", "", {"image": subject.images.crashing_later, "data": MORE_DATA}
        ),
        expected=lambda _, before: before,
        succeeds=False,
    ),
)

REBUILDS = (
    Operation(
        name="rebuild",
        prepare=Subject.running,
        request=lambda subject, before: _rebuild(subject, subject.other_image(before)),
        expected=lambda subject, before: replace(before, image_id=subject.other_image(before)),
    ),
    Operation(
        name="rebuild of a stopped app",
        prepare=Subject.stopped,
        request=lambda subject, before: _rebuild(subject, subject.other_image(before)),
        expected=lambda subject, before: replace(
            before,
            state="created",
            image_id=subject.other_image(before),
            password="pending",
            login=None,
        ),
    ),
    Operation(
        name="rebuild that fails",
        prepare=Subject.running,
        request=lambda subject, _: _rebuild(subject, subject.images.crashing_later),
        expected=lambda _, before: before,
        succeeds=False,
    ),
    Operation(
        name="rebuild of a paused app",
        prepare=by_hand.paused,
        request=lambda subject, before: _rebuild(subject, subject.other_image(before)),
        expected=lambda subject, before: replace(
            before, state="running", image_id=subject.other_image(before)
        ),
        undone=lambda before: (before, replace(before, state="running")),
        only="POST /containers/ID/stop",
    ),
    Operation(
        name="rebuild without a container",
        prepare=Subject.without_container,
        request=lambda subject, _: subject.ask("PUT", "/rebuild"),
        expected=by_hand.with_another_container,
        only="POST /containers/create",
    ),
)

# A rebuild that pulls is here, so that the files take as long as one another.
ROLLBACKS = (
    Operation(
        name="rebuild, image pulled",
        prepare=Subject.running_as_pulled,
        request=lambda subject, _: subject.ask("PUT", "/rebuild"),
        expected=lambda _, before: before,
    ),
    Operation(
        name="rollback",
        prepare=Subject.rebuilt,
        request=lambda subject, _: subject.ask("PUT", "/rollback"),
        expected=lambda subject, before: replace(before, image_id=subject.other_image(before)),
    ),
    Operation(
        name="rollback, live",
        prepare=Subject.limited,
        request=lambda subject, _: subject.ask("PUT", "/rollback"),
        expected=lambda _, before: replace(before, **_other_limits(before)),
    ),
    Operation(
        name="rollback, image pulled",
        prepare=Subject.with_a_revision_whose_image_is_gone,
        request=lambda subject, _: subject.ask("PUT", "/rollback"),
        expected=lambda subject, before: replace(
            before, image=subject.images.removable, image_id=subject.removed_image
        ),
    ),
    Operation(
        name="rollback that fails",
        prepare=Subject.with_a_revision_that_fails,
        request=lambda subject, _: subject.ask("PUT", "/rollback"),
        expected=lambda _, before: before,
        succeeds=False,
    ),
)

DATA_AND_PASSWORDS = (
    Operation(
        name="password of a running app",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("PUT", "/keys", subject.passwords.new()),
        expected=lambda subject, before: with_last_password(subject, before, "set"),
    ),
    Operation(
        name="password of a stopped app",
        prepare=Subject.stopped,
        request=lambda subject, _: subject.ask("PUT", "/keys", subject.passwords.new()),
        expected=lambda subject, before: with_last_password(subject, before, "pending"),
    ),
    Operation(
        name="restore",
        prepare=Subject.stopped_with_tar,
        request=lambda subject, _: subject.ask("PUT", "/data", data=subject.tar),
        expected=lambda _, before: replace(
            before,
            state="created",
            password="pending",
            login=None,
            volumes=dict.fromkeys(before.volumes, "kept"),
        ),
    ),
    Operation(
        name="restore that fails",
        prepare=Subject.stopped_with_tar,
        request=lambda subject, _: subject.ask("PUT", "/data", data=subject.tar[:-1024]),
        expected=lambda _, before: before,
        succeeds=False,
    ),
    Operation(
        name="export, paused",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("GET", "/data?pause=true"),
        expected=lambda _, before: before,
    ),
    Operation(
        name="export",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("GET", "/data"),
        expected=lambda _, before: before,
    ),
    Operation(
        name="label",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("POST", "/labels", {"Value": "tier:web"}),
        expected=lambda _, before: replace(before, labels=("tier:web",)),
    ),
)

EVERY_OPERATION = (
    *(*CREATIONS, *ISOLATED_CREATIONS, *MOVES, *UPDATES, *REBUILDS),
    *(*ROLLBACKS, *STARTS, *ENDS, *DATA_AND_PASSWORDS),
)
# A fault of an operation of each kind, at a call that it makes each time.
_SAMPLE: dict[str, tuple[Moment, str]] = {
    "create": ("after", "POST /containers/create"),
    "update, live": ("lost", "POST /containers/ID/update"),
    "update, replacing": ("before", "POST /containers/ID/stop"),
    "rebuild": ("after", "POST /containers/ID/rename"),
    "rebuild that fails": ("lost", "POST /containers/ID/start"),
    "rollback": ("before", "POST /containers/ID/start"),
    "start": ("after", "POST /containers/ID/update"),
    "restart": ("lost", "POST /containers/ID/start"),
    "stop": ("lost", "POST /containers/ID/stop"),
    "delete": ("after", "DELETE /containers/ID"),
    "password of a running app": ("before", "POST /exec/ID/start"),
    "restore": ("before", "POST /containers/ID/rename"),
    "export, paused": ("after", "POST /containers/ID/pause"),
}
SAMPLED = tuple(
    (operation, Fault(Call(call, 1), moment))
    for name, (moment, call) in _SAMPLE.items()
    for operation in EVERY_OPERATION
    if operation.name == name
)
assert len(SAMPLED) == len(_SAMPLE)
