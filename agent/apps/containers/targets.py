"""The ports in a container to which the app's ports of the host are mapped."""

import re
from dataclasses import dataclass

from agent.apps.defaults import AppDefaults
from agent.engine.models import Image
from agent.model import App
from config.address import MAX_PORT

SSH_PORT_LABEL = "rollcall.ssh_port"
HTTP_PORT_LABEL = "rollcall.http_port"
MOST_NAMED = 8


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
    notes = [_udp_note(sorted(image.udp_ports))] if image.udp_ports else []
    exposed = sorted(image.tcp_ports - {ssh})
    if named is None and len(exposed) == 1:
        named = exposed[0]
    if named is None and exposed:
        notes.append(_choice_note(exposed, taken=defaults.http_port))
    return Targets(ssh=ssh, http=named or defaults.http_port, note="; ".join(notes))


def _choice_note(exposed: list[int], *, taken: int) -> str:
    return (
        f"the image exposes the ports {_listed(exposed)}, and `http_port` leads to {taken}; set"
        " `http_target` to choose"
    )


def _udp_note(exposed: list[int]) -> str:
    plural = "s" * (len(exposed) > 1)
    return f"the image exposes the UDP port{plural} {_listed(exposed)}; only TCP is published"


def _listed(ports: list[int]) -> str:
    """Return some ports as text: the engine repeats the note in each list and each event."""
    if len(ports) > MOST_NAMED:
        return f"{', '.join(map(str, ports[:MOST_NAMED]))} and {len(ports) - MOST_NAMED} more"
    *most, last = map(str, ports)
    return f"{', '.join(most)} and {last}" if most else last


def _port(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]{1,5}", text):
        return None
    return int(text) if 1 <= int(text) <= MAX_PORT else None
