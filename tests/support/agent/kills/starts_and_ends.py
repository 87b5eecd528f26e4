"""The starts, stops and deletions of apps: precondition, request and expected outcome."""

from dataclasses import replace

import requests

from tests.support.agent.kills import by_hand
from tests.support.agent.kills.engine_proxy import PULL
from tests.support.agent.kills.operation import Operation
from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.subject import OPEN, Subject


def _end_creation(subject: Subject, method: str, path: str) -> requests.Response | None:
    return subject.ask_while_pulling(method, path, lambda: subject.post(subject.images.pulled))


def with_last_password(subject: Subject, before: Snapshot, word: str) -> Snapshot:
    """Return the app with its newest password, which is ``set`` or ``pending``."""
    login = subject.passwords.last if word == "set" else before.login
    return replace(before, password=word, login=login)


STARTS = (
    Operation(
        name="start",
        prepare=Subject.stopped,
        request=lambda subject, _: subject.ask("PUT", "/start"),
        expected=lambda _, before: replace(before, state="running", desired="running"),
    ),
    Operation(
        name="start with a pending password",
        prepare=Subject.stopped_with_pending_password,
        request=lambda subject, _: subject.ask("PUT", "/start"),
        expected=lambda subject, before: with_last_password(
            subject, replace(before, state="running", desired="running"), "set"
        ),
    ),
    Operation(
        name="restart",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("PUT", "/restart"),
        expected=lambda _, before: before,
    ),
    Operation(
        name="start without a container",
        prepare=Subject.without_container,
        request=lambda subject, _: subject.ask("PUT", "/start"),
        expected=by_hand.with_another_container,
    ),
    Operation(
        name="start without a container, image pulled",
        prepare=by_hand.without_container_and_image,
        request=lambda subject, _: subject.ask("PUT", "/start"),
        expected=lambda subject, before: replace(
            before, state="running", image_id=subject.removed_image, network=OPEN
        ),
        only=PULL,
    ),
    Operation(
        name="start of a paused app",
        prepare=by_hand.paused,
        request=lambda subject, _: subject.ask("PUT", "/start"),
        expected=lambda _, before: replace(before, state="running"),
    ),
    Operation(
        name="pending password after a start by hand, by the agent",
        prepare=Subject.stopped_with_pending_password,
        request=lambda subject, _: subject.start_by_hand(),
        expected=lambda subject, before: with_last_password(
            subject, replace(before, state="running"), "set"
        ),
        settle=Subject.until_password_set,
    ),
    Operation(
        name="start of an app that is down, by the agent",
        prepare=Subject.running,
        request=lambda subject, _: subject.kill(),
        expected=lambda _, before: before,
        settle=Subject.until_up,
    ),
    Operation(
        name="restart of an unhealthy app, by the agent",
        prepare=Subject.checked,
        request=lambda subject, _: subject.take_page_away(),
        expected=lambda _, before: before,
        settle=Subject.until_up,
    ),
)
ENDS = (
    Operation(
        name="stop",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("PUT", "/stop"),
        expected=lambda _, before: replace(before, state="exited", desired="stopped"),
    ),
    Operation(
        name="stop of a paused app",
        prepare=by_hand.paused,
        request=lambda subject, _: subject.ask("PUT", "/stop"),
        expected=lambda _, before: replace(before, state="exited", desired="stopped"),
    ),
    Operation(
        name="stop that ends a pull",
        prepare=Subject.running_as_pulled,
        request=lambda subject, _: subject.ask_while_pulling("PUT", "/stop"),
        expected=lambda _, before: replace(before, state="exited", desired="stopped"),
    ),
    Operation(
        name="delete that ends a pull",
        prepare=Subject.running_as_pulled,
        request=lambda subject, _: subject.ask_while_pulling("DELETE", ""),
        expected=lambda _, __: Snapshot(),
    ),
    Operation(
        name="stop that ends a creation's pull",
        prepare=Subject.absent_and_not_pulled,
        request=lambda subject, _: _end_creation(subject, "PUT", "/stop"),
        expected=lambda _, before: before,
        succeeds=False,  # there is no app that is stopped
    ),
    Operation(
        name="delete that ends a creation's pull",
        prepare=Subject.absent_and_not_pulled,
        request=lambda subject, _: _end_creation(subject, "DELETE", ""),
        expected=lambda _, before: before,
    ),
    Operation(
        name="delete",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("DELETE", ""),
        expected=lambda _, __: Snapshot(),
    ),
    Operation(
        name="delete, keeping the data",
        prepare=Subject.running,
        request=lambda subject, _: subject.ask("DELETE", "?keep_data=true"),
        expected=lambda _, before: Snapshot(volumes=before.volumes),
    ),
    Operation(
        name="delete without a container",
        prepare=Subject.without_container,
        request=lambda subject, _: subject.ask("DELETE", ""),
        expected=lambda _, __: Snapshot(),
    ),
    Operation(
        name="delete of a failed app, data kept from before",
        prepare=Subject.failed_with_data,
        request=lambda subject, _: subject.ask("DELETE", ""),
        expected=lambda _, before: Snapshot(volumes=before.volumes),
    ),
)
