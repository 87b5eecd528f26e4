"""The ports in a container to which the app's ports of the host are mapped."""

import re
from dataclasses import dataclass

from agent.apps.defaults import AppDefaults
from agent.engine.models import Image
from agent.model import App
from config.address import MAX_PORT

SSH_PORT_LABEL = "rollcall.ssh_port"
HTTP_PORT_LABEL = "rollcall.http_port"


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The ports in a container.

    Attributes:
        ssh: The port on which the app serves SSH.
        http: The port on which the app serves HTTP.
        note: What an operator should know of the choice, empty if it was clear.

    """

    ssh: int
    http: int
    note: str = ""


def find_targets(app: App, image: Image, defaults: AppDefaults) -> Targets:
    """Return the ports that the app names, else the image's labels, else what it exposes.

    A label that is invalid counts as missing.
    """
    ssh = app.ssh_target or _port(image.labels.get(SSH_PORT_LABEL)) or defaults.ssh_port
    named = app.http_target or _port(image.labels.get(HTTP_PORT_LABEL))
    if named is not None:
        return Targets(ssh=ssh, http=named)
    exposed = sorted(image.tcp_ports - {ssh})
    if len(exposed) == 1:
        return Targets(ssh=ssh, http=exposed[0])
    note = _note(exposed, taken=defaults.http_port) if exposed else ""
    return Targets(ssh=ssh, http=defaults.http_port, note=note)


def _note(exposed: list[int], *, taken: int) -> str:
    *most, last = map(str, exposed)
    return (
        f"the image exposes the ports {', '.join(most)} and {last}, and `http_port` leads to"
        f" {taken}; set `http_target` to choose"
    )


def _port(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,5}", text):
        return None
    return int(text) if 1 <= int(text) <= MAX_PORT else None
