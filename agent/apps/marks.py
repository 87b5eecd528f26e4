"""What the agent writes on its containers and volumes, and reads from images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent.apps.defaults import AppDefaults
from agent.apps.errors import UnfitImage
from agent.apps.spec import LAST_PORT
from agent.containers import ContainerPlan, EngineInfo, Image
from agent.journal import App, Change

APP = "rollcall.app"
AGENT = "rollcall.agent"
CHANGE = "rollcall.change"
SPEC = "rollcall.spec"
SSH_PORT = "rollcall.ssh_port"
HTTP_PORT = "rollcall.http_port"
DATA = "rollcall.data"
USER = "rollcall.user"

USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
PATH = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){1,16}")
LONGEST_PATH = 256
# The engine repeats a container's labels in each list and each event.
MOST_OF_LABELS = 65_536
FORBIDDEN_ROOTS = ("dev", "etc", "proc", "sys")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """An app as its container carries it; the values of ``env`` are in the container's own.

    The engine publishes labels in its events, so nothing secret is among these.
    """

    image: str
    ssh_port: int
    http_port: int
    created_at: str
    labels: tuple[str, ...]
    env: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageWishes:
    """What an image asks for by its labels; what it says badly is as if it said nothing."""

    ssh_port: int
    http_port: int
    data: str


def volume_name(app: str) -> str:
    """Name the app's volume."""
    return f"rollcall-{app}"


def volume_marks(app: str) -> dict[str, str]:
    """Give the labels by which a volume is known as ours."""
    return {APP: app}


def is_user_name(text: str) -> bool:
    """Tell whether this can be a user in a container."""
    return USER_NAME.fullmatch(text) is not None


def is_data_path(text: str) -> bool:
    """Tell whether a volume may be mounted there in a container."""
    fits = len(text) <= LONGEST_PATH and PATH.fullmatch(text) is not None
    return fits and text.split("/")[1] not in FORBIDDEN_ROOTS


def password_user(labels: Mapping[str, str], default: str) -> str:
    """Name the user whose password is set, from the labels that a container has of its image."""
    user = labels.get(USER, "")
    return user if is_user_name(user) else default


def check_image(image: Image, reference: str) -> None:
    """Refuse an image whose labels would burden all that is asked of the engine; UnfitImage."""
    size = sum(len(key) + len(value) for key, value in image.labels.items())
    if size > MOST_OF_LABELS:
        raise UnfitImage(
            f"the labels of the image `{reference}` take {size} bytes, and may take"
            f" {MOST_OF_LABELS}; build it with fewer"
        )


def wishes(image: Image, defaults: AppDefaults) -> ImageWishes:
    """Read an image's labels, and its one exposed port other than the SSH port."""
    ssh_port = _port(image.labels.get(SSH_PORT)) or defaults.ssh_port
    data = image.labels.get(DATA, "")
    exposed = image.tcp_ports - {ssh_port}
    (only,) = exposed if len(exposed) == 1 else (None,)
    return ImageWishes(
        ssh_port=ssh_port,
        http_port=_port(image.labels.get(HTTP_PORT)) or only or defaults.http_port,
        data=data if is_data_path(data) else defaults.data,
    )


def _port(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,5}", text):
        return None
    return int(text) if 1 <= int(text) <= LAST_PORT else None


def _marks(app: App, change: Change, agent: str) -> dict[str, str]:
    spec = Spec(
        image=app.image,
        ssh_port=app.ssh_port,
        http_port=app.http_port,
        created_at=app.created_at,
        labels=app.labels,
        env=tuple(app.env),
    )
    return {
        APP: app.name,
        AGENT: agent,
        CHANGE: change.id,
        SPEC: msgspec.json.encode(spec).decode(),
    }


def plan(
    app: App,
    change: Change,
    *,
    name: str,
    image: Image,
    host: EngineInfo,
    agent: str,
    defaults: AppDefaults,
) -> ContainerPlan:
    """Plan the container of an app, from what was asked for and nothing else."""
    wanted = wishes(image, defaults)
    return ContainerPlan(
        name=name,
        image=app.image,
        labels=_marks(app, change, agent),
        env=app.env,
        ports=((wanted.ssh_port, app.ssh_port), (wanted.http_port, app.http_port)),
        bind=defaults.bind,
        cpu=app.cpu,
        memory=app.memory,
        pids=defaults.pids,
        log_mib=defaults.log_mib,
        stop_seconds=defaults.stop_seconds,
        volume=volume_name(app.name),
        data=wanted.data,
        init=host.init,
        no_new_privileges=defaults.no_new_privileges,
    )
