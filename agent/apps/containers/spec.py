"""The configuration, labels and ports of containers, and what is read from labels of images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.apps.admission.fields import excerpt
from agent.apps.containers.volumes import mounted_volumes
from agent.apps.defaults import AppDefaults
from agent.apps.errors import UnfitImage
from agent.apps.labels import NOTE_LABEL, container_labels, encode_label
from agent.engine.models import ContainerSpec, EngineInfo, Image
from agent.model import App
from config.address import MAX_PORT

USER_LABEL = "rollcall.user"

USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# The engine repeats it in each inspect of a container, and of it the labels and the command in each
# list of all.
MAX_IMAGE_CONFIG_BYTES = 65_536
# Each list of the engine has all exposed ports; 131,070 of them take it ten seconds.
MAX_EXPOSED_PORTS = 1024
SSH_PORT_LABEL = "rollcall.ssh_port"
HTTP_PORT_LABEL = "rollcall.http_port"
MOST_NAMED = 8


def is_user_name(text: str) -> bool:
    """Return whether this can be the name of a user in a container."""
    return USER_NAME.fullmatch(text) is not None


def password_user(labels: Mapping[str, str], default: str) -> str:
    """Return the user whose password is set; a container has the labels of its image."""
    user = labels.get(USER_LABEL, "")
    return user if is_user_name(user) else default


def check_image(image: Image, reference: str) -> None:
    """Reject an image of which no app can be made; UnfitImage.

    A large configuration would make the answers of the engine large, up to where the agent rejects
    its list of all containers. Many exposed ports would make each list slow. At a relative path,
    the engine mounts a volume without a name, whatever else is mounted there.
    """
    if image.exposes > MAX_EXPOSED_PORTS:
        raise UnfitImage(
            f"the image `{reference}` exposes {image.exposes} ports, and may expose"
            f" {MAX_EXPOSED_PORTS}, since each makes the engine slower; build it without its EXPOSE"
        )
    relative = [path for path in image.volumes if not path.startswith("/")]
    if relative:
        raise UnfitImage(
            f"the image `{reference}` declares the VOLUME {excerpt(min(relative))}, which is no"
            " absolute path, so that its files could not be kept; build it with a path that begins"
            " with /"
        )
    if image.config_bytes > MAX_IMAGE_CONFIG_BYTES:
        raise UnfitImage(
            f"the configuration of the image `{reference}` (LABEL, CMD, ENTRYPOINT, ENV,"
            f" HEALTHCHECK and so on) takes {image.config_bytes} bytes in the engine's answers,"
            f" and may take {MAX_IMAGE_CONFIG_BYTES}; build it with less: put scripts into files"
        )


def build_container_spec(
    app: App,
    operation: str,
    *,
    name: str,
    image: Image,
    host: EngineInfo,
    agent: str,
    network: str | None,
    defaults: AppDefaults,
) -> ContainerSpec:
    """Return the spec of an app's container, from the app's fields alone.

    ``operation`` and ``agent`` are the ids of the operation and the agent that make it; without a
    ``network`` it is in the engine's default one.
    """
    targets = find_targets(app, image, defaults)
    return ContainerSpec(
        name=name,
        image=app.image,
        labels=container_labels(
            agent=agent,
            app=app.name,
            operation=operation,
            spec=encode_label(app),
            note=targets.note,
        ),
        env=app.env,
        ports=((targets.ssh, app.ssh_port), (targets.http, app.http_port)),
        bind=defaults.bind,
        cpu=app.cpu,
        memory=app.memory,
        pids=defaults.pids,
        log_mib=defaults.log_mib,
        stop_seconds=stop_seconds(app, defaults),
        volumes=mounted_volumes(app, image, defaults),
        init=host.init,
        no_new_privileges=defaults.no_new_privileges,
        command=app.command,
        network=network,
        autostart=app.desired == "running",
    )


def with_note(spec: ContainerSpec, note: str) -> ContainerSpec:
    """Return a spec with one more note for its operator."""
    notes = filter(None, (spec.labels[NOTE_LABEL], note))
    return replace(spec, labels={**spec.labels, NOTE_LABEL: "; ".join(notes)})


def lost_note(volumes: list[str]) -> str:
    """Return the note that volumes were lost, empty if none was."""
    if not volumes:
        return ""
    return f"somebody removed its data: the volume {', '.join(volumes)} was made again, empty"


def unknown_user(image: Image) -> str:
    """Return the note that nobody knows to whom new volumes are to belong."""
    return (
        f"the image's user {excerpt(image.user)} is not in its /etc/passwd and /etc/group, so new"
        " volumes belong to root"
    )


def stop_seconds(app: App, defaults: AppDefaults) -> int:
    """Return the seconds that an app has to end before it is killed."""
    return defaults.stop_seconds if app.stop_seconds is None else app.stop_seconds


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
