"""What people do to an app by hand, at the engine, before an operation; and what comes of it."""

from contextlib import suppress
from dataclasses import replace

import docker.errors

from dev.waiting import until
from tests.support.agent.kills.snapshot import Snapshot
from tests.support.agent.kills.subject import OPEN, Subject

# The agent looks once a minute for the images of interrupted pulls.
LEFT_SECONDS = 150.0
PAUSED_SECONDS = 30.0


def paused(subject: Subject) -> None:
    """Pause the app."""
    subject.running()
    (container,) = subject.app.containers()
    until(lambda: _has_paused(subject, container["Id"]), "paused", within=PAUSED_SECONDS)


def _has_paused(subject: Subject, container: str) -> bool:
    """Pause a container; return False if the kernel did not freeze its processes in time."""
    try:
        subject.app.client.pause(container)
    except docker.errors.APIError as error:
        if "unable to freeze" not in str(error):
            raise
        return False
    return True


def running_without_the_other_image(subject: Subject) -> None:
    """Make the app run, and remove the image that it is to get."""
    subject.running()
    with suppress(docker.errors.ImageNotFound):
        subject.app.client.remove_image(subject.images.removable, force=True)


def without_container_and_image(subject: Subject) -> None:
    """Remove the container of an app whose image the agent has pulled, and the image."""
    subject.running_as_pulled(subject.images.removable)
    (container,) = subject.app.containers()
    subject.removed_image = container["ImageID"]
    subject.app.client.remove_container(container["Id"], force=True)
    subject.app.client.remove_image(subject.removed_image, force=True)


def other_image(subject: Subject) -> str | None:
    """Return the id of the image that is pulled, None if it is not on the host."""
    found = subject.app.client.images(name=subject.images.removable)
    return found[0]["Id"] if found else None


def until_no_image_is_left(subject: Subject) -> None:
    """Wait until no operation runs, and the image that was pulled is the app's or removed."""

    def none_left() -> bool:
        record = subject.app.settled()
        is_used = record is not None and record["image"] == subject.images.removable
        return is_used or other_image(subject) is None

    until(none_left, "the removal of the image", within=LEFT_SECONDS)


def with_another_container(subject: Subject, before: Snapshot) -> Snapshot:
    """Return an app that had lost its container and has another one."""
    return replace(
        before,
        state="running",
        image_id=subject.tagged_image(),
        network=OPEN,
        login=subject.passwords.last,
    )
