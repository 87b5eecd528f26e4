"""What this host says of itself: its name, its labels and its key-values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostedApp:
    """An app as the roll call needs it.

    Attributes:
        name: The app's name, which is also its container's.
        http_port: The host's TCP port that leads to the app's HTTP port.
        labels: The app's own labels, in the order in which they were added.
        running: Whether its container runs.
    """

    name: str
    http_port: int
    labels: tuple[str, ...]
    running: bool


@dataclass(frozen=True)
class Hosting:
    """All apps on this host, and the engine under them.

    Attributes:
        apps: Every app, sorted by name; as last known where the engine does not answer.
        docker_state: `running`, or `unreachable`.
        docker_version: The engine's version, such as `20.10.24`; None until it has answered once.
    """

    apps: tuple[HostedApp, ...]
    docker_state: str
    docker_version: str | None
