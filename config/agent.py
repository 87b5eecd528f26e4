"""The settings of the agent."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from config.address import MAX_PORT
from config.server import PortNumber, Seconds, Secret, ServerSettings, Settings, default_store


class AgentKey(Secret, frozen=True, kw_only=True):
    """An API key and its permissions: ``read`` is GET, ``write`` is every other method."""

    name: str
    allow: Annotated[tuple[Literal["read", "write"], ...], msgspec.Meta(min_length=1)]


class NodeSettings(Settings, frozen=True, kw_only=True):
    """What this host reports to the registries.

    The default ``hostname`` is the system's, fully qualified if /etc/hosts lists it so (DNS is not
    asked). The default ``advertise`` is the hostname with the port that the agent listens on.
    ``labels_dir`` is a directory of files with one label on each line.
    """

    hostname: str | None = None
    advertise: str | None = None
    labels: tuple[str, ...] = ()
    labels_dir: str = "/etc/rollcall/labels.d"
    kv: dict[str, str] = msgspec.field(default_factory=dict)


class RegistryConnectionSettings(Settings, frozen=True, kw_only=True):
    """A registry to report to.

    ``certificate`` and ``certificate_key`` are the client certificate of this host.
    """

    url: str
    key_file: str
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None

    def mistakes(self) -> Iterator[str]:
        """Require an http(s) URL, and both files of a certificate or none."""
        if not self.url.startswith(("http://", "https://")):
            yield f"`url` is `{self.url}`; write http://HOST:PORT or https://HOST:PORT"
        if (self.certificate is None) != (self.certificate_key is None):
            yield "`certificate` and `certificate_key` go together"


class ImageRegistrySettings(Settings, frozen=True, kw_only=True):
    """A login at an image registry, such as ``images.example.com:5000``."""

    server: str
    user: str
    password_file: str


class DockerSettings(Settings, frozen=True, kw_only=True):
    """The Docker Engine: its socket, its time limit, and logins at image registries."""

    url: str = "unix:///run/docker.sock"
    timeout_seconds: Seconds = 30
    registries: tuple[ImageRegistrySettings, ...] = ()

    def mistakes(self) -> Iterator[str]:
        """Require a local socket: its traffic is as powerful as root."""
        if not self.url.startswith("unix:///"):
            yield f"`url` is `{self.url}`; write unix:///PATH of the engine's socket"


class AppsSettings(Settings, frozen=True, kw_only=True):
    """Defaults and limits of apps.

    ``cpu`` is in percent of one core, ``memory`` and ``log_mib`` in MiB, ``stop_seconds`` the time
    from SIGTERM to SIGKILL, ``pull_seconds`` the time that a pull may take. Creating, pulling and
    rebuilding need ``min_free_percent`` of the space and of the inodes free, on the disks of the
    engine and of the agent's database.
    """

    cpu: Annotated[int, msgspec.Meta(ge=1)] = 100
    memory: Annotated[int, msgspec.Meta(ge=6)] = 512
    ports: str = "20000-29999"
    bind: str = "0.0.0.0"
    ssh_port: PortNumber = 22
    http_port: PortNumber = 8000
    data: str = "/srv"
    allowed_data: tuple[str, ...] = ("/",)
    ssh_user: str = "app"
    stop_seconds: Annotated[int, msgspec.Meta(ge=0)] = 10
    pull_seconds: Seconds = 3600
    allow_command: bool = True
    password_min: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    pids: Annotated[int, msgspec.Meta(ge=1)] = 512
    log_mib: Annotated[int, msgspec.Meta(ge=1)] = 10
    min_free_percent: Annotated[int, msgspec.Meta(ge=0, le=99)] = 5
    no_new_privileges: bool = True

    def mistakes(self) -> Iterator[str]:
        """Require a range of ports."""
        try:
            self.port_range()
        except ValueError as error:
            yield str(error)

    def port_range(self) -> range:
        """Return the ports that the agent may choose from; ValueError for a malformed range."""
        first, _, last = self.ports.partition("-")
        if not (
            first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last) <= MAX_PORT
        ):
            raise ValueError(f"`ports` is `{self.ports}`; write FIRST-LAST, such as 20000-29999")
        return range(int(first), int(last) + 1)


class AgentSettings(ServerSettings, frozen=True, kw_only=True):
    """All of agent.yml."""

    listen: str = "127.0.0.1:7656"
    keys: tuple[AgentKey, ...] = ()
    node: NodeSettings = NodeSettings()
    registries: tuple[RegistryConnectionSettings, ...] = ()
    heartbeat_seconds: Seconds = 30
    docker: DockerSettings = DockerSettings()
    store: str = msgspec.field(default_factory=default_store("agent.db"))
    apps: AppsSettings = AppsSettings()
