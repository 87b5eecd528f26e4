"""Which values the fields of an app, its labels and its name may have."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec import UNSET

from agent.apps.errors import InvalidApp, InvalidLabel, PortForbidden
from agent.engine.models import EngineInfo
from agent.model import APP_NAME_PATTERN, App, AppChanges, HealthCheck, NewApp, given_values
from clients.message import label_error
from config.address import MAX_PORT

APP_NAME = re.compile(APP_NAME_PATTERN)
# Without a dot or a port, the first part is no server but a part of the path, for most engines.
IMAGE_SERVER = (
    r"(?:(?:localhost|[a-zA-Z0-9][a-zA-Z0-9-]*\.[a-zA-Z0-9.-]*[a-zA-Z0-9]"
    r"|[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?:[0-9]{1,5})/)?"
)
IMAGE_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
IMAGE_REFERENCE = re.compile(
    rf"(?:sha256:[0-9a-f]{{64}}|{IMAGE_SERVER}{IMAGE_PATH_PART}(?:/{IMAGE_PATH_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)"
)
MAX_IMAGE_LENGTH = 255
MAX_EXCERPT_LENGTH = 80
ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}")
MAX_ENV_BYTES = 32_768
# The engine repeats the command in each list.
MAX_COMMAND_BYTES = 8192
PORT_FIELDS = ("ssh_port", "http_port", "ssh_target", "http_target")
# An absolute path in normal form, below the root.
PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f]+)+")
# The characters of a request line: printable ASCII, without a fragment.
HTTP_PATH = re.compile(r"/[!-\"$-~]*")
MAX_PATH_LENGTH = 256
MAX_PATH_PART_BYTES = 255
# The engine mounts files of its own there, and /etc holds the password.
ENGINES_PATHS = ("/dev", "/proc", "/sys")
FORBIDDEN_PATHS = ("/etc",)
MAX_APP_LABELS = 1024
MIN_MEMORY_MIB = 6
CPU_PER_CORE = 100


def check_new_app(wanted: NewApp) -> None:
    """Reject a new app with invalid fields.

    Raises:
        InvalidApp: the message names the field and says what would be right.

    """
    if not APP_NAME.fullmatch(wanted.name):
        raise InvalidApp(
            f"`name` is {excerpt(wanted.name)}; a name begins with a-z or 0-9, goes on with"
            " a-z 0-9 _ . - and has 2 to 63 characters"
        )
    _check_fields(given_values(wanted))


def check_changes(changes: AppChanges) -> None:
    """Reject an update with invalid fields; InvalidApp as for a new app."""
    _check_fields(given_values(changes))
    added, removed = changes.env_set or {}, changes.env_unset or ()
    if changes.env is not UNSET and (added or removed):
        raise InvalidApp("`env` replaces all variables; leave out `env_set` and `env_unset`, or it")
    _check_env(added, "env_set")
    for name in removed:
        if not ENV_KEY.fullmatch(name):
            raise InvalidApp(f"`env_unset` holds {excerpt(name)}, which is no name of a variable")
        if name in added:
            raise InvalidApp(f"`env_set` and `env_unset` both hold {name}; write it in one of them")


def _check_fields(values: Mapping[str, Any]) -> None:
    checks: dict[str, Callable[[Any], None]] = {
        "image": _check_image,
        **{field: partial(_check_port, field) for field in PORT_FIELDS},
        "env": _check_env,
        "command": _check_command,
        "data": _check_data,
        "health": _check_health,
    }
    for field, check in checks.items():
        if field in values:
            check(values[field])


def is_path(text: str) -> bool:
    """Return whether this is an absolute path in normal form, other than ``/``."""
    parts = text.encode("utf-8", "replace").split(b"/")
    fits = len(text) <= MAX_PATH_LENGTH and max(map(len, parts)) <= MAX_PATH_PART_BYTES
    return fits and PATH.fullmatch(text) is not None


def is_below(path: str, prefixes: Collection[str]) -> bool:
    """Return whether a path is one of these, or in one of them."""
    return any(each in ("/", path) or path.startswith(f"{each}/") for each in prefixes)


def check_allowed_data(data: Collection[str], allowed: Collection[str]) -> None:
    """Reject paths that are below none of the allowed ones; InvalidApp."""
    for path in data:
        if not is_below(path, allowed):
            places = " ".join(allowed) or "nothing"
            raise InvalidApp(
                f"`data` holds {excerpt(path)}; `apps.allowed_data` of this agent allows {places}"
            )


def check_fits_host(app: App, host: EngineInfo, *, before: App | None = None) -> None:
    """Reject an app that is too large for the host, or whose ports are equal; InvalidApp.

    A limit that is the same as ``before`` is accepted: the host may have become smaller.
    """
    most = CPU_PER_CORE * host.cpus
    if not 1 <= app.cpu <= most and (before is None or app.cpu != before.cpu):
        raise InvalidApp(f"`cpu` is {app.cpu}; 1 to {most} percent of one core are possible here")
    fits = MIN_MEMORY_MIB <= app.memory <= host.memory
    if not fits and (before is None or app.memory != before.memory):
        raise InvalidApp(
            f"`memory` is {app.memory}; {MIN_MEMORY_MIB} to {host.memory} MiB are possible here"
        )
    if app.ssh_port == app.http_port:
        raise InvalidApp(
            f"`ssh_port` and `http_port` are both {app.http_port}; they must be distinct"
        )


def check_label(label: str) -> str:
    """Return the label; InvalidLabel if it is not ``key:value``."""
    error = label_error(label)  # heartbeats hold it
    if error is not None:
        raise InvalidLabel(f"`Value` is {excerpt(label)}; {error}")
    if not label.partition(":")[0].strip() or ":" not in label:
        raise InvalidLabel(f"`Value` is {excerpt(label)}; write a key, a colon and a value")
    if label.startswith("serving:"):
        raise InvalidLabel(f"`Value` is {excerpt(label)}; the agent makes labels `serving:` itself")
    return label


def check_target_port(label: str, app: App) -> None:
    """Reject a label by which Prometheus would ask another port of this host; PortForbidden."""
    own = (str(app.http_port), str(app.ssh_port))
    kind, _, key, port = (*label.split(":", 3), "", "", "")[:4]
    if kind == "prometheus" and key == "port" and port not in own:
        raise PortForbidden(
            f"{excerpt(label)} names a port that is not the app's, and a key for some apps may name"
            f" {' or '.join(own)} alone; without such a label it is {app.http_port}"
        )


def check_given_up_ports(before: App, after: App) -> None:
    """Check that no label of the app names a port that it gives up; PortForbidden.

    Another app may get it, and would be asked in place of this one.
    """
    for label in before.labels:
        if label.endswith((f":port:{before.http_port}", f":port:{before.ssh_port}")):
            check_target_port(label, after)


def excerpt(text: str) -> str:
    """Return the beginning of a text from outside, escaped for logs and terminals."""
    return ascii(text if len(text) <= MAX_EXCERPT_LENGTH else text[:MAX_EXCERPT_LENGTH] + "...")


def _check_image(image: str) -> None:
    if len(image) > MAX_IMAGE_LENGTH or not IMAGE_REFERENCE.fullmatch(image):
        raise InvalidApp(
            f"`image` is {excerpt(image)}; write [SERVER/]NAME[:TAG] or [SERVER/]NAME@sha256:DIGEST"
        )


def _check_port(field: str, port: int | None) -> None:
    if port is not None and not 1 <= port <= MAX_PORT:
        raise InvalidApp(
            f"`{field}` is {port}; write 1 to {MAX_PORT}, or 0: the agent chooses the port of a new"
            " app, and an app keeps the one that it has"
        )


def _check_command(command: tuple[str, ...], field: str = "command") -> None:
    if any("\0" in word for word in command):
        raise InvalidApp(f"`{field}` holds a NUL character, which no command can")
    if sum(len(word.encode()) for word in command) > MAX_COMMAND_BYTES:
        raise InvalidApp(f"`{field}` is larger than {MAX_COMMAND_BYTES} bytes")


def check_allowed_command(
    command: tuple[str, ...], health: HealthCheck | None, *, allowed: bool
) -> None:
    """Reject commands, also as a check, where apps may have none; InvalidApp."""
    in_check = health is not None and health.command is not None
    if not allowed and (command or in_check):
        field = "command" if command else "health.command"
        raise InvalidApp(f"`{field}` is set, which `apps.allow_command` of this agent forbids")


def _check_health(health: HealthCheck | None) -> None:
    if health is None:
        return
    if (health.path is None) == (health.command is None):
        raise InvalidApp("`health` holds either `path` or `command`, and not both")
    if health.path is not None and not HTTP_PATH.fullmatch(health.path):
        raise InvalidApp(
            f"`health.path` is {excerpt(health.path)}; write a path such as /healthz, with escapes"
            " for characters that a URL does not hold"
        )
    if health.command is not None:
        if not health.command or not health.command[0]:
            raise InvalidApp("`health.command` is empty; write a program and its arguments")
        _check_command(health.command, "health.command")


def _check_env(env: Mapping[str, str], field: str = "env") -> None:
    size = 0
    for key, value in env.items():
        if not ENV_KEY.fullmatch(key):
            raise InvalidApp(
                f"`{field}` holds the name {excerpt(key)}; a name begins with a letter or _ and"
                " goes on with letters, digits, _ . -"
            )
        if "\0" in value:
            raise InvalidApp(f"`{field}.{key}` holds a NUL character, which no environment can")
        size += len(key) + len(value.encode())
    if size > MAX_ENV_BYTES:
        raise InvalidApp(f"`{field}` is larger than {MAX_ENV_BYTES} bytes")


def _check_data(data: tuple[str, ...]) -> None:
    for path in data:
        if not is_path(path):
            raise InvalidApp(
                f"`data` holds {excerpt(path)}; write an absolute path in normal form, such as"
                f" /var/lib/app, of at most {MAX_PATH_LENGTH} characters"
            )
        if path in FORBIDDEN_PATHS or is_below(path, ENGINES_PATHS):
            raise InvalidApp(f"`data` holds {excerpt(path)}, where no volume can be mounted")
        if data.count(path) > 1:
            raise InvalidApp(f"`data` holds {excerpt(path)} twice")
