"""The settings of the registry."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from config.address import listen_address
from config.server import (
    PortNumber,
    Seconds,
    Secret,
    ServerSettings,
    Settings,
    default_store,
    repeated_names,
)

ALL_NODES = ("*",)
HOST_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789-_."
# Shell patterns of characters of hostnames; no two dots in a row, and none at an end but the last.
HOST_PATTERN = re.compile(r"(?!.{254})(?!.*\.\.)(?!\.)(?:[a-z0-9_.*?-]|\[!?[a-z0-9_.-]+\])+")
CHARACTER_CLASS = re.compile(r"\[[^]]*\]")
MAX_SHOWN = 60
SHARED_STORES = ("nats:",)  # URLs of stores that several registries share begin so


def _mistakes_in_patterns(setting: str, patterns: Iterable[str]) -> Iterator[str]:
    """Require that each shell pattern may match a hostname."""
    for pattern in patterns:
        text = pattern.lower()
        can_match = HOST_PATTERN.fullmatch(text) is not None and all(
            any(fnmatchcase(character, each) for character in HOST_CHARACTERS)
            for each in CHARACTER_CLASS.findall(text)
        )
        if not can_match:
            yield (
                f"`{setting}` holds `{pattern[:MAX_SHOWN]}`, which matches no hostname; write such"
                " as web-7.example.com or old-*"
            )


class RegistryKey(Secret, frozen=True, kw_only=True):
    """An API key and its permissions.

    ``scrape`` is GET of the metrics and of targets, ``read`` is every GET, ``write`` is every other
    method, and ``register`` is POST and DELETE of the nodes that match ``nodes``: shell patterns of
    hostnames, such as ``web-*``.
    """

    name: str
    allow: Annotated[
        tuple[Literal["scrape", "read", "write", "register"], ...], msgspec.Meta(min_length=1)
    ]
    nodes: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ALL_NODES

    def mistakes(self) -> Iterator[str]:
        """Require that ``nodes`` bounds something: they hold only for ``register``."""
        yield from super().mistakes()
        yield from _mistakes_in_patterns("nodes", self.nodes)
        if self.nodes != ALL_NODES and ("write" in self.allow or "register" not in self.allow):
            yield (
                "`nodes` needs an `allow` with register and without write:"
                " a key that may write may change every node"
            )


NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class NodesSettings(Settings, frozen=True, kw_only=True):
    """After how many seconds without a heartbeat a node is stale, and is forgotten (0: never).

    Nodes are forgotten only while at most ``expire_at_most_percent`` of all nodes expire around one
    time (0: however many), so that a site that was cut off is kept.

    After a start on a store that is new or restored, targets are withheld for
    ``warm_up_seconds`` (0: not at all). All nodes together take ``max_mib`` MiB of memory at most
    (0: no bound), and a node changes ``changes_per_minute`` times at most, in bursts of that size
    (0: no limit). So many MiB of large heartbeats of one host are decoded a minute. Hosts that
    match ``denied``, shell patterns of hostnames, are left out of every answer, and nobody may
    report or delete them. Those in the file ``expected`` are never forgotten.
    """

    stale_after_seconds: Seconds = 90
    expire_after_seconds: NotNegative = 86_400
    expire_at_most_percent: Percent = 10
    warm_up_seconds: NotNegative | None = None
    max_mib: NotNegative = 512
    changes_per_minute: NotNegative = 60
    denied: tuple[str, ...] = ()
    expected: Annotated[str, msgspec.Meta(min_length=1)] | None = None

    def mistakes(self) -> Iterator[str]:
        """Require that no node is forgotten before it is stale, and that some hosts are denied."""
        yield from _mistakes_in_patterns("denied", self.denied)
        for pattern in self.denied:
            if pattern and not pattern.strip("*?."):
                yield (
                    f"`denied` holds `{pattern[:MAX_SHOWN]}`, which may match every host, and all"
                    " would be forgotten; name a part of the hostname, such as old-*"
                )
        if 0 < self.expire_after_seconds < self.stale_after_seconds:
            yield "`expire_after_seconds` must be 0 or at least `stale_after_seconds`"

    @property
    def warm_up(self) -> int:
        """The seconds of the warm-up; by default those after which a node is stale."""
        given = self.warm_up_seconds
        return self.stale_after_seconds if given is None else given


class PrometheusSettings(Settings, frozen=True, kw_only=True):
    """How labels become scrape targets.

    ``default_port`` and ``ports`` (by service) are the ports of targets that name none. With
    ``targets: own`` a node may name only its hostname and the address that it posts from.
    ``allow_labels`` are labels that a node may set although they are withheld by default
    (``job``, ``instance`` and those that begin with two underscores).
    """

    default_port: PortNumber = 9100
    ports: dict[str, PortNumber] = msgspec.field(default_factory=dict)
    targets: Literal["any", "own"] = "any"
    allow_labels: tuple[str, ...] = ()


class NatsLoginSettings(Settings, frozen=True, kw_only=True):
    """A login at NATS servers, in one way.

    Either ``user`` and ``password``, or an ``nkey`` (its seed), or ``credentials``, which is the
    name of a credentials file.
    """

    user: str | None = None
    password: Secret | None = None
    nkey: Secret | None = None
    credentials: str | None = None

    def mistakes(self) -> Iterator[str]:
        """Require one way at most, and that it is complete."""
        if (self.user is None) != (self.password is None):
            yield "`user` and `password` go together"
        if sum(way is not None for way in (self.user, self.nkey, self.credentials)) > 1:
            yield "give one of `user`, `nkey` and `credentials`"


class NatsTlsSettings(Settings, frozen=True, kw_only=True):
    """PEM files for connections to NATS: the CA of the servers, and what the registry shows."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def mistakes(self) -> Iterator[str]:
        """Require both halves of a certificate."""
        if (self.certificate is None) != (self.key is None):
            yield "`certificate` and `key` go together"


class NatsSettings(NatsLoginSettings, frozen=True, kw_only=True):
    """What a store in NATS needs beside its URL.

    A bucket is made with ``replicas`` (default: 3 in a cluster, else 1), ``placement_cluster`` and
    ``placement_tags``; one that is there must have those that are set. ``monitoring`` are URLs of
    the servers' monitoring, ``system`` is a login for the system account: one of them has to show
    that the servers sync each write, unless ``accept_loss`` says that acknowledged changes may be
    lost.
    """

    tls: NatsTlsSettings | None = None
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    placement_cluster: str | None = None
    placement_tags: tuple[str, ...] = ()
    monitoring: tuple[str, ...] = ()
    system: NatsLoginSettings | None = None
    accept_loss: bool = False

    def mistakes(self) -> Iterator[str]:
        """Require URLs of HTTP without a user, since they are logged."""
        yield from super().mistakes()
        for url in self.monitoring:
            if not url.startswith(("http://", "https://")):
                yield f"`monitoring`: {url!a} is not a URL such as http://n1:8222"
            elif "@" in url:
                yield "`monitoring`: a URL must not hold a user, since URLs are logged"


class CallbackParts(Settings, frozen=True, kw_only=True):
    """Those of the files in CallbackSettings that are named soundly, where others are not."""

    key_file: str | None = None
    ca: str | None = None


class CallbackSettings(CallbackParts, frozen=True, kw_only=True):
    """A URL to which changes of nodes are posted, of those that have all of the ``labels``.

    The key in ``key_file`` signs the bodies. ``ca`` is a PEM bundle, the only one trusted then.
    """

    url: str
    key_file: str
    labels: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(max_length=16)
    ] = ()

    @property
    def name(self) -> str:
        """The URL without its query, by which callbacks are distinguished."""
        return self.url.partition("?")[0]

    def mistakes(self) -> Iterator[str]:
        """Require a URL of HTTP without a user, since it is logged; a CA is for https."""
        mistake = _mistake_in_url(self.url)
        if mistake is not None:
            yield f"`url` {mistake}; write http://HOST:PORT/PATH or https://HOST:PORT/PATH"
        if self.ca is not None and self.url.startswith("http:"):
            yield "`ca` needs https; write https://HOST:PORT/PATH as `url`, or leave `ca` out"


def _mistake_in_url(url: str) -> str | None:
    """Return why nothing can be posted to a URL; None if that is possible."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError as error:
        return f"is no URL: {error}"
    if "@" in parts.netloc or parts.fragment:
        return "must not hold a user or a fragment, since it is logged"
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        return "is no URL of a receiver"
    return None


MAX_CALLBACKS = 16


class RegistrySettings(ServerSettings, frozen=True, kw_only=True):
    """All of registry.yml.

    On ``shared_listen`` (HOST:PORT) the registry listens beside ``listen``, and so may others of
    this host that share its store. With several ``node_secret`` entries, new node keys are made
    with the first; keys made with any of them are accepted.
    """

    listen: str = "127.0.0.1:7655"
    shared_listen: str | None = None
    keys: tuple[RegistryKey, ...] = ()
    node_secret: Secret | tuple[Secret, ...] | None = None
    store: str = msgspec.field(default_factory=default_store("registry.db"))
    nats: NatsSettings = NatsSettings()
    nodes: NodesSettings = NodesSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    callbacks: Annotated[tuple[CallbackSettings, ...], msgspec.Meta(max_length=MAX_CALLBACKS)] = ()

    def mistakes(self) -> Iterator[str]:
        """Require a shared store where registries share an address, and distinct names."""
        yield from super().mistakes()
        yield from repeated_names([each.name for each in self.keys])
        names = [callback.name for callback in self.callbacks]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield f"`callbacks`: {name} is set twice (a query makes no difference)"
        if self.shared_listen is None:
            return
        try:
            listen_address(self.shared_listen)
        except ValueError as error:
            yield f"`shared_listen`: {error}"
        if self.shared_listen == self.listen:
            yield "`shared_listen` must differ from `listen`, which is this registry's own address"
        if not is_shared_store(self.store):
            yield "`shared_listen` needs a `store` that several registries share: nats://..."


def is_shared_store(url: str) -> bool:
    """Return whether several registries can share the store that a URL names."""
    return url.startswith(SHARED_STORES)
