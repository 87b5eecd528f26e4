"""The settings of the agent."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from config.address import MAX_PORT
from config.server import (
    PortNumber,
    Seconds,
    Secret,
    ServerSettings,
    Settings,
    default_store,
    repeated_names,
)

HTTP_SCHEMES = ("http://", "https://")
# Of the characters of an app's name, and those of shell patterns.
APP_PATTERN = re.compile(r"[a-z0-9_.*?\[\]!-]{1,63}")


class AgentKey(Secret, frozen=True, kw_only=True):
    """An API key and its permissions.

    ``scrape`` is GET of the metrics, ``read`` is every GET, and ``write`` is every other method.
    With ``apps`` the key is only for the apps whose names match one of these shell patterns.
    """

    name: str
    allow: Annotated[tuple[Literal["scrape", "read", "write"], ...], msgspec.Meta(min_length=1)]

    apps: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None

    def mistakes(self) -> Iterator[str]:
        """Require that ``apps`` bounds something, and that apps can have such names."""
        yield from super().mistakes()
        if self.apps is None:
            return
        if "scrape" in self.allow:
            yield (
                "`apps` and an `allow` with scrape do not go together:"
                " the metrics tell of all apps; give the scraper a key of its own"
            )
        for pattern in self.apps:
            if APP_PATTERN.fullmatch(pattern) is None:
                yield f"`apps` holds `{pattern}`, which matches no app; write such as shop, shop-*"


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


class RegistryGroupParts(Settings, frozen=True, kw_only=True):
    """Those of the fields in RegistryGroupSettings that are sound, where others are not."""

    url: str | None = None
    urls: tuple[str, ...] | None = None
    key_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    certificate_key: str | None = None

    def named_urls(self) -> list[tuple[str, str]]:
        """Return each URL as it is written, with the name of its setting."""
        named = [] if self.url is None else [("url", self.url)]
        return named + [(f"urls[{index}]", url) for index, url in enumerate(self.urls or ())]


class RegistryGroupSettings(RegistryGroupParts, frozen=True, kw_only=True):
    """A registry to report to (``url``), or several of which one at a time is used (``urls``).

    ``certificate`` and ``certificate_key`` are the client certificate of this host.
    """

    key_file: str

    def mistakes(self) -> Iterator[str]:
        """Require `url` or `urls` with http(s) URLs; files are for https, those of a pair both."""
        if (self.url is None) == (self.urls is None):
            yield "either `url` or `urls` is needed, and not both"
        elif self.urls == ():
            yield "`urls` is empty; name the registries of which one is to be used"
        for setting, url in self.named_urls():
            if not url.startswith(HTTP_SCHEMES):
                yield f"`{setting}` is `{url}`; write http://HOST:PORT or https://HOST:PORT"
        if (self.certificate is None) != (self.certificate_key is None):
            yield "`certificate` and `certificate_key` go together"
        urls = self.named_urls()
        if urls and all(url.startswith("http:") for _, url in urls):
            yield from map(_needs_https, self._tls_files())

    def _tls_files(self) -> list[str]:
        """Return which of the settings for https are there."""
        names = ("ca", "certificate", "certificate_key")
        return [name for name in names if getattr(self, name) is not None]


def _needs_https(name: str) -> str:
    return f"`{name}` needs https; write https://HOST:PORT, or leave `{name}` out"


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
    from SIGTERM to SIGKILL, ``pull_seconds`` the time that a pull may take. An app that is
    updated or rebuilt must stay up for ``settle_seconds`` and get healthy within
    ``healthy_seconds``, or the time that its check needs. Creating, pulling and
    rebuilding need ``min_free_percent`` of the space and of the inodes free, on the disks of the
    engine and of the agent's database; with less, images of old revisions go first.
    ``overcommit_percent`` of the host's memory may be promised to apps; 0 is no bound. With
    ``isolated`` apps reach of one another only what is published; ``subnet`` is that of their
    network then, or a list of one for each IP version. ``allowed_images`` are prefixes of the
    references of images, with their servers; null allows all.
    """

    cpu: Annotated[int, msgspec.Meta(ge=1)] = 100
    memory: Annotated[int, msgspec.Meta(ge=6)] = 512
    ports: str = "20000-29999"
    bind: str = "0.0.0.0"
    ssh_port: PortNumber = 22
    http_port: PortNumber = 8000
    data: str = "/srv"
    allowed_data: tuple[str, ...] = ("/",)
    allowed_images: tuple[str, ...] | None = None
    ssh_user: str = "app"
    stop_seconds: Annotated[int, msgspec.Meta(ge=0)] = 10
    pull_seconds: Seconds = 3600
    settle_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 5
    healthy_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 60
    allow_command: bool = True
    password_min: Annotated[int, msgspec.Meta(ge=1, le=511)] = 8
    pids: Annotated[int, msgspec.Meta(ge=1)] = 512
    log_mib: Annotated[int, msgspec.Meta(ge=1)] = 10
    overcommit_percent: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 100
    min_free_percent: Annotated[int, msgspec.Meta(ge=0, le=99)] = 5
    no_new_privileges: bool = True
    isolated: bool = True
    subnet: str | tuple[str, ...] = ()

    @property
    def subnets(self) -> tuple[str, ...]:
        """The subnets, however they are written."""
        return (self.subnet,) if isinstance(self.subnet, str) else self.subnet

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
    """All of agent.yml. Few clients ask an agent, so ``max_connections`` is smaller by default."""

    listen: str = "127.0.0.1:7656"
    max_connections: Annotated[int, msgspec.Meta(ge=1)] = 1000
    keys: tuple[AgentKey, ...] = ()
    node: NodeSettings = NodeSettings()
    registries: tuple[RegistryGroupSettings, ...] = ()
    heartbeat_seconds: Seconds = 30
    docker: DockerSettings = DockerSettings()
    store: str = msgspec.field(default_factory=default_store("agent.db"))
    apps: AppsSettings = AppsSettings()

    def mistakes(self) -> Iterator[str]:
        """Require distinct names of keys."""
        yield from super().mistakes()
        yield from repeated_names([each.name for each in self.keys])
