"""The complete state of an app as one value that can be compared."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from passlib.hash import sha512_crypt

from tests.support.agent.kills.observed_app import ObservedApp

VolumeContent: TypeAlias = Literal["empty", "kept"]
Volumes: TypeAlias = Mapping[str, VolumeContent]
Files: TypeAlias = Mapping[str, bytes]


class Passwords:
    """The passwords that an app was given, and those of the hashes that were seen."""

    def __init__(self) -> None:
        self._given: list[str] = []
        # A verification takes a tenth of a second, and most snapshots see the same hash again.
        self._seen: dict[str, str | None] = {}

    @property
    def last(self) -> str:
        """The newest password."""
        return self._given[-1]

    def new(self) -> str:
        """Return a new password."""
        self._given.append(secrets.token_hex(8))
        return self.last

    def of(self, hashed: str) -> str | None:
        """Return the password of a hash, None if it is of none that was given."""
        if hashed not in self._seen:
            fitting = (each for each in reversed(self._given) if sha512_crypt.verify(each, hashed))
            self._seen[hashed] = next(fitting, None)
        return self._seen[hashed]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An app as it is observed from outside; the default values stand for no app at all.

    Attributes:
        state: The record's state, None if there is no app. The same holds for the other fields of
            the record.
        login: The password that works in the container.
        image_id: The image that the container was made of.
        network: The network that the container is in.
        volumes: By path, whether each volume holds what was last written.

    """

    state: str | None = None
    desired: str | None = None
    image: str | None = None
    ssh_port: int | None = None
    http_port: int | None = None
    cpu: int | None = None
    memory: int | None = None
    env: Mapping[str, str] | None = None
    data: Sequence[str] | None = None
    labels: tuple[str, ...] | None = None
    password: str | None = None
    login: str | None = None
    image_id: str | None = None
    network: str | None = None
    volumes: Volumes = field(default_factory=dict)

    def differences(self, other: "Snapshot") -> str:
        """Return the fields that differ from another snapshot, with both values."""
        mine, others = asdict(self), asdict(other)
        differing = [name for name in mine if mine[name] != others[name]]
        return ", ".join(f"{name}: {mine[name]} and not {others[name]}" for name in differing)


def take_snapshot(app: ObservedApp, passwords: Passwords, image: str) -> Snapshot:
    """Return a snapshot of an app that no operation changes; all that there is of it must agree.

    Args:
        app: the app.
        passwords: those that its container may hold.
        image: an image for a container that reads volumes.

    """
    record, containers = app.record(), app.containers()
    app.check_history(record)
    if record is None or record["container_id"] is None:
        assert containers == [], "there is a container of no app"
        return Snapshot(**_fields(record), volumes=_volumes_alone(app, app.volumes(), image))
    (container,) = containers
    app.check_container(record, container["Id"])
    files = app.files(container["Id"])
    return Snapshot(
        **_fields(record),
        login=_login(files, passwords),
        image_id=container["ImageID"],
        network=app.network(container["Id"]),
        volumes=_volumes(app, record, container["Id"], files, image),
    )


def _fields(record: Mapping[str, Any] | None) -> dict[str, Any]:
    if record is None:
        return {}
    names = ("state", "desired", "image", "ssh_port", "http_port", "cpu", "memory", "env", "data")
    fields = {name: record[name] for name in names}
    return fields | {"labels": tuple(record["labels"]), "password": record["password"]}


def _login(files: Files, passwords: Passwords) -> str | None:
    shadow = files.get("/etc/shadow")
    if shadow is None:
        return None
    user, hashed = shadow.decode().strip().split(":")[:2]
    assert user == "app"
    login = passwords.of(hashed)
    assert login is not None, "the container has a password that nobody set"
    return login


def _volumes(
    app: ObservedApp, record: Mapping[str, Any], container_id: str, files: Files, image: str
) -> Volumes:
    mounted, existing = app.mounts(container_id), app.volumes()
    assert mounted.items() <= record["volumes"].items()
    assert record["volumes"] == existing, "a volume is lost or left"
    contents = {path: _content(app, files, path) for path in mounted}
    unmounted = {path: name for path, name in existing.items() if path not in mounted}
    return {**contents, **_volumes_alone(app, unmounted, image)}


def _volumes_alone(app: ObservedApp, volumes: Mapping[str, str], image: str) -> Volumes:
    if not volumes:
        return {}
    binds = [f"{name}:{path}" for path, name in volumes.items()]
    reader = app.client.create_container(
        image,
        host_config=app.client.create_host_config(binds=binds),
        name=f"reader-{secrets.token_hex(4)}",
    )
    try:
        files = app.files(reader["Id"])
        return {path: _content(app, files, path) for path in volumes}
    finally:
        app.client.remove_container(reader["Id"], force=True, v=True)


def _content(app: ObservedApp, files: Files, path: str) -> VolumeContent:
    content = files.get(f"{path}/file")
    assert content in (None, app.content.encode()), "the volume holds what was written earlier"
    return "empty" if content is None else "kept"
