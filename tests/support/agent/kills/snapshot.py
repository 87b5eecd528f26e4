"""The complete state of an app as one value that can be compared."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import docker.errors
from passlib.hash import sha512_crypt

from tests.support.agent.kills.observed_app import ObservedApp

VolumeContent: TypeAlias = Literal["none", "empty", "kept"]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An app as it is observed from outside; the default values stand for no app at all.

    Attributes:
        state: The record's state, None if there is no app. The same holds for the other fields of
            the record.
        login: The password that works in the container.
        image_id: The image that the container was made of.
        volume: Whether there is a volume, and whether it holds what was last written.

    """

    state: str | None = None
    desired: str | None = None
    image: str | None = None
    ssh_port: int | None = None
    http_port: int | None = None
    cpu: int | None = None
    memory: int | None = None
    env: Mapping[str, str] | None = None
    labels: tuple[str, ...] | None = None
    password: str | None = None
    login: str | None = None
    image_id: str | None = None
    volume: VolumeContent = "none"

    def differences(self, other: "Snapshot") -> str:
        """Return the fields that differ from another snapshot, with both values."""
        mine, others = asdict(self), asdict(other)
        differing = [name for name in mine if mine[name] != others[name]]
        return ", ".join(f"{name}: {mine[name]} and not {others[name]}" for name in differing)


def take_snapshot(app: ObservedApp, passwords: Iterable[str], image: str) -> Snapshot:
    """Return a snapshot of an app that no operation changes; its record and container must agree.

    Args:
        app: the app.
        passwords: those that its container may hold, the most likely first.
        image: an image for a container that reads the volume.

    """
    record, containers = app.record(), app.containers()
    if record is None or record["container_id"] is None:
        assert containers == [], "there is a container of no app"
        return Snapshot(**_fields(record), volume=_volume_alone(app, image))
    (container,) = containers
    app.check_container(record, container["Id"])
    return Snapshot(
        **_fields(record),
        login=_login(app, container["Id"], passwords),
        image_id=container["ImageID"],
        volume=_volume(app, container["Id"]),
    )


def _fields(record: Mapping[str, Any] | None) -> dict[str, Any]:
    if record is None:
        return {}
    names = ("state", "desired", "image", "ssh_port", "http_port", "cpu", "memory", "env")
    fields = {name: record[name] for name in names}
    return fields | {"labels": tuple(record["labels"]), "password": record["password"]}


def _login(app: ObservedApp, container_id: str, passwords: Iterable[str]) -> str | None:
    shadow = app.read_file(container_id, "/etc/shadow")
    if shadow is None:
        return None
    user, hashed = shadow.strip().split(":")[:2]
    assert user == "app"
    fitting = (each for each in passwords if sha512_crypt.verify(each, hashed))
    login = next(fitting, None)
    assert login is not None, "the container has a password that nobody set"
    return login


def _volume_alone(app: ObservedApp, image: str) -> VolumeContent:
    try:
        app.client.inspect_volume(app.volume)
    except docker.errors.NotFound:
        return "none"
    host = app.client.create_host_config(binds=[f"{app.volume}:/srv"])
    name = f"reader-{secrets.token_hex(4)}"
    reader = app.client.create_container(image, host_config=host, name=name)
    try:
        return _volume(app, reader["Id"])
    finally:
        app.client.remove_container(reader["Id"], force=True)


def _volume(app: ObservedApp, container_id: str) -> VolumeContent:
    (mount,) = app.client.inspect_container(container_id)["Mounts"]
    assert mount["Name"] == app.volume
    content = app.read_file(container_id, "/srv/file")
    assert content in (None, app.content), "the volume holds what was written earlier"
    return "empty" if content is None else "kept"
