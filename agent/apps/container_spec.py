"""What the agent writes on its containers and volumes, and reads from images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from agent.apps.defaults import AppDefaults
from agent.apps.errors import UnfitImage
from agent.apps.validation import LAST_PORT
from agent.engine.protocol import ContainerSpec, EngineInfo, Image
from agent.model import App, Change

APP_LABEL = "rollcall.app"
AGENT_LABEL = "rollcall.agent"
CHANGE_LABEL = "rollcall.change"
SPEC_LABEL = "rollcall.spec"
SSH_PORT_LABEL = "rollcall.ssh_port"
HTTP_PORT_LABEL = "rollcall.http_port"
DATA_LABEL = "rollcall.data"
USER_LABEL = "rollcall.user"

USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
DATA_PATH = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){1,16}")
MAX_DATA_PATH_LENGTH = 256
# The engine repeats a container's labels in each list and each event.
MAX_IMAGE_LABELS_LENGTH = 65_536
FORBIDDEN_ROOTS = ("dev", "etc", "proc", "sys")


class AppSpecLabel(msgspec.Struct, frozen=True, kw_only=True):
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
class ImageHints:
    """What an image asks for by its labels; what it says badly is as if it said nothing."""

    ssh_port: int
    http_port: int
    data: str


def volume_name(app: str) -> str:
    """Name the app's volume."""
    return f"rollcall-{app}"


def own_volume_labels(app: str) -> dict[str, str]:
    """Give the labels by which a volume is known as ours."""
    return {APP_LABEL: app}


def is_user_name(text: str) -> bool:
    """Tell whether this can be a user in a container."""
    return USER_NAME.fullmatch(text) is not None


def is_data_path(text: str) -> bool:
    """Tell whether a volume may be mounted there in a container."""
    fits = len(text) <= MAX_DATA_PATH_LENGTH and DATA_PATH.fullmatch(text) is not None
    return fits and text.split("/")[1] not in FORBIDDEN_ROOTS


def password_user(labels: Mapping[str, str], default: str) -> str:
    """Name the user whose password is set, from the labels that a container has of its image."""
    user = labels.get(USER_LABEL, "")
    return user if is_user_name(user) else default


def check_image_labels(image: Image, reference: str) -> None:
    """Refuse an image whose labels would burden all that is asked of the engine; UnfitImage."""
    size = sum(len(key) + len(value) for key, value in image.labels.items())
    if size > MAX_IMAGE_LABELS_LENGTH:
        raise UnfitImage(
            f"the labels of the image `{reference}` take {size} bytes, and may take"
            f" {MAX_IMAGE_LABELS_LENGTH}; build it with fewer"
        )


def read_hints(image: Image, defaults: AppDefaults) -> ImageHints:
    """Read an image's labels, and its one exposed port other than the SSH port."""
    ssh_port = _port(image.labels.get(SSH_PORT_LABEL)) or defaults.ssh_port
    data = image.labels.get(DATA_LABEL, "")
    exposed = image.tcp_ports - {ssh_port}
    (only,) = exposed if len(exposed) == 1 else (None,)
    return ImageHints(
        ssh_port=ssh_port,
        http_port=_port(image.labels.get(HTTP_PORT_LABEL)) or only or defaults.http_port,
        data=data if is_data_path(data) else defaults.data,
    )


def _port(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,5}", text):
        return None
    return int(text) if 1 <= int(text) <= LAST_PORT else None


def _container_labels(app: App, change: Change, agent: str) -> dict[str, str]:
    spec = AppSpecLabel(
        image=app.image,
        ssh_port=app.ssh_port,
        http_port=app.http_port,
        created_at=app.created_at,
        labels=app.labels,
        env=tuple(app.env),
    )
    return {
        APP_LABEL: app.name,
        AGENT_LABEL: agent,
        CHANGE_LABEL: change.id,
        SPEC_LABEL: msgspec.json.encode(spec).decode(),
    }


def build_container_spec(
    app: App,
    change: Change,
    *,
    name: str,
    image: Image,
    host: EngineInfo,
    agent: str,
    defaults: AppDefaults,
) -> ContainerSpec:
    """Plan the container of an app, from what was asked for and nothing else."""
    hints = read_hints(image, defaults)
    return ContainerSpec(
        name=name,
        image=app.image,
        labels=_container_labels(app, change, agent),
        env=app.env,
        ports=((hints.ssh_port, app.ssh_port), (hints.http_port, app.http_port)),
        bind=defaults.bind,
        cpu=app.cpu,
        memory=app.memory,
        pids=defaults.pids,
        log_mib=defaults.log_mib,
        stop_seconds=defaults.stop_seconds,
        volume=volume_name(app.name),
        data=hints.data,
        init=host.init,
        no_new_privileges=defaults.no_new_privileges,
    )
