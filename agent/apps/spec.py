"""What may be asked for: a new app, a change of one, and what either may hold."""

import re

import msgspec

from agent.apps.errors import InvalidApp, InvalidLabel
from agent.containers import EngineInfo
from agent.journal import App

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{1,62}")
HOST = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?/)?"
PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE = re.compile(
    rf"(?:sha256:[0-9a-f]{{64}}|{HOST}{PART}(?:/{PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
LONGEST_IMAGE = 255
SHOWN = 80
ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}")
LONGEST_ENV = 32_768
LONGEST_LABEL = 1024
MOST_LABELS = 1024
LEAST_MEMORY = 6
CPU_PER_CORE = 100
LAST_PORT = 65_535


class NewApp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a create asks for. A port of 0 is picked by the agent."""

    name: str
    image: str
    ssh_port: int = 0
    http_port: int = 0
    cpu: int | msgspec.UnsetType = msgspec.UNSET
    memory: int | msgspec.UnsetType = msgspec.UNSET
    env: dict[str, str] = msgspec.field(default_factory=dict)


class AppChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an update asks for; what is left out stays."""

    image: str | msgspec.UnsetType = msgspec.UNSET
    ssh_port: int | msgspec.UnsetType = msgspec.UNSET
    http_port: int | msgspec.UnsetType = msgspec.UNSET
    cpu: int | msgspec.UnsetType = msgspec.UNSET
    memory: int | msgspec.UnsetType = msgspec.UNSET
    env: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


def check_new(wanted: NewApp) -> None:
    """Refuse a new app whose fields are not what they may be.

    Raises:
        InvalidApp: the message names the field and says what would be right.

    """
    if not NAME.fullmatch(wanted.name):
        raise InvalidApp(
            f"`name` is {shown(wanted.name)}; a name begins with a-z or 0-9, goes on with"
            " a-z 0-9 _ . - and has 2 to 63 characters"
        )
    _check_image(wanted.image)
    _check_port("ssh_port", wanted.ssh_port, least=0)
    _check_port("http_port", wanted.http_port, least=0)
    _check_env(wanted.env)


def check_changes(changes: AppChanges) -> None:
    """Refuse an update whose fields are not what they may be; InvalidApp as for a new app."""
    if changes.image is not msgspec.UNSET:
        _check_image(changes.image)
    if changes.ssh_port is not msgspec.UNSET:
        _check_port("ssh_port", changes.ssh_port, least=1)
    if changes.http_port is not msgspec.UNSET:
        _check_port("http_port", changes.http_port, least=1)
    if changes.env is not msgspec.UNSET:
        _check_env(changes.env)


def check_fits(app: App, host: EngineInfo) -> None:
    """Refuse an app that the host has no room for, or whose ports are one; InvalidApp."""
    most = CPU_PER_CORE * host.cpus
    if not 1 <= app.cpu <= most:
        raise InvalidApp(f"`cpu` is {app.cpu}; 1 to {most} percent of one core are possible here")
    if not LEAST_MEMORY <= app.memory <= host.memory:
        raise InvalidApp(
            f"`memory` is {app.memory}; {LEAST_MEMORY} to {host.memory} MiB are possible here"
        )
    if app.ssh_port == app.http_port:
        raise InvalidApp(
            f"`ssh_port` and `http_port` are both {app.http_port}; they must be distinct"
        )


def check_label(label: str) -> str:
    """Give the label back, or refuse what is no ``key:value``; InvalidLabel."""
    if len(label) > LONGEST_LABEL or not all(map(str.isprintable, label)):
        raise InvalidLabel(
            f"`Value` must have at most {LONGEST_LABEL} characters and no control characters"
        )
    if not label.partition(":")[0].strip() or ":" not in label:
        raise InvalidLabel(f"`Value` is {shown(label)}; write a key, a colon and a value")
    return label


def shown(text: str) -> str:
    """Give the beginning of what somebody sent, in a form that cannot harm a log or a terminal."""
    return ascii(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def _check_image(image: str) -> None:
    if len(image) > LONGEST_IMAGE or not IMAGE.fullmatch(image):
        raise InvalidApp(
            f"`image` is {shown(image)}; write [SERVER/]NAME[:TAG] or [SERVER/]NAME@sha256:DIGEST"
        )


def _check_port(field: str, port: int, *, least: int) -> None:
    if not least <= port <= LAST_PORT:
        picked = ", or 0 for one that the agent picks" if least == 0 else ""
        raise InvalidApp(f"`{field}` is {port}; write 1 to {LAST_PORT}{picked}")


def _check_env(env: dict[str, str]) -> None:
    size = 0
    for key, value in env.items():
        if not ENV_KEY.fullmatch(key):
            raise InvalidApp(
                f"`env` holds the name {shown(key)}; a name begins with a letter or _ and goes on"
                " with letters, digits, _ . -"
            )
        if "\0" in value:
            raise InvalidApp(f"`env.{key}` holds a NUL character, which no environment can")
        size += len(key) + len(value.encode())
    if size > LONGEST_ENV:
        raise InvalidApp(f"`env` is larger than {LONGEST_ENV} bytes")
