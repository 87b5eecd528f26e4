"""The content of a heartbeat of this host: its labels and its key-values."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from clients.message import (
    APP_STATES,
    MAX_BODY_BYTES,
    MAX_LABELS,
    MAX_VALUE,
    Heartbeat,
    label_error,
)

AGENTS_SERVICE = "rollcall"
LEFT_OUT = "labels.left_out"
# What a registry adds to a node must fit, too, into a message that NATS takes by default: 1 MiB.
MAX_BYTES = MAX_BODY_BYTES - 4096
AGENT_KV_KEYS = frozenset(
    {
        "agent.id",
        "agent.instance",
        "agent.url",
        "agent.version",
        "apps.running",
        APP_STATES,
        "apps.stopped",
        "apps.total",
        "apps.unhealthy",
        "docker.state",
        "docker.version",
        "host.arch",
        "host.cpus",
        "host.kernel",
        "host.memory_mib",
        "host.os",
        LEFT_OUT,
    }
)
# Its argument is the number of seconds that it may take at most, or None.
BuildHeartbeat = Callable[[float | None], Awaitable[Heartbeat]]


@dataclass
class Room:
    """How many labels a heartbeat still has room for, and how many bytes of JSON."""

    labels: int
    bytes: int

    def take(self, group: Sequence[str]) -> bool:
        """Take the room of some labels; return False if they do not all fit."""
        size = _json_bytes(group)
        if len(group) > self.labels or size > self.bytes:
            return False
        self.labels -= len(group)
        self.bytes -= size
        return True


@dataclass(frozen=True)
class FittedLabels:
    """The labels that are sent, how many are not, and why.

    ``faults`` have no number: with it, each label that is added would be another line in the log.
    """

    labels: list[str]
    left_out: int
    faults: set[str]


def fit_labels(
    configured: Iterable[str], by_app: Mapping[str, Sequence[str]], room: Room
) -> FittedLabels:
    """Leave out the labels for which a registry would reject the whole heartbeat.

    Configured labels go first, then the name of each app (the first of its labels). What is left is
    shared by the apps. A service of an app is sent as a whole or not at all, also where one of its
    labels is invalid: a part of them could make another target, or one of another app.
    """
    wanted = dict.fromkeys(configured)
    names = dict.fromkeys(labels[0] for labels in by_app.values())
    invalid = {
        label: fault
        for label in [*wanted, *(label for labels in by_app.values() for label in labels)]
        if (fault := label_error(label)) is not None
    }
    faults = {f"label {label[:80]!a}: {fault}" for label, fault in invalid.items()}
    kept = set[str]()
    for label in wanted | names:
        if label not in invalid and room.take([label]):
            kept.add(label)
        elif label not in invalid:
            faults.add(
                "labels of settings, of files or of names of apps, beyond the size of a heartbeat"
            )
    services = {
        app: [
            group for group in _services(labels[1:]) if not any(each in invalid for each in group)
        ]
        for app, labels in by_app.items()
    }
    for app, groups in _shared(services, room).items():
        kept.update(label for group in groups for label in group)
        if len(groups) < len(services[app]):
            faults.add(f"services of app {app} beyond its share of a heartbeat")
    every = wanted | dict.fromkeys(label for labels in by_app.values() for label in labels)
    sent = [label for label in every if label in kept]
    return FittedLabels(sent, len(every) - len(sent), faults)


def _services(labels: Iterable[str]) -> list[list[str]]:
    """Return the labels ``prometheus:SERVICE@APP...`` of an app, by service."""
    services: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        services.setdefault(label.split(":", 2)[1], []).append(label)
    return list(services.values())


def _shared(services: Mapping[str, Sequence[list[str]]], room: Room) -> dict[str, list[list[str]]]:
    """Return which services of each app get room.

    The next is always of the app that then has least, of the labels or of the bytes, whichever is
    the larger part. So each app gets all it has up to an equal share, whatever the others have.
    """
    all_labels, all_bytes = max(room.labels, 1), max(room.bytes, 1)
    turns: list[tuple[float, str, list[str]]] = []
    for app, groups in services.items():
        labels = size = 0
        for group in groups:
            labels += len(group)
            size += _json_bytes(group)
            turns.append((max(labels / all_labels, size / all_bytes), app, group))
    shared: dict[str, list[list[str]]] = {app: [] for app in services}
    for _, app, group in sorted(turns):
        if room.take(group):
            shared[app].append(group)
    return shared


def _json_bytes(labels: Iterable[str]) -> int:
    return sum(len(msgspec.json.encode(label)) + len(",") for label in labels)


@dataclass(frozen=True)
class HostedApp:
    """An app, as far as heartbeats need it.

    ``http_port`` is the TCP port of the host that leads to the app. ``labels`` are the app's, in
    the order in which they were added. ``running`` is whether its container runs, ``stopped``
    whether it does not and is not to, ``healthy`` what its check has found, None if there is none.
    It is ``failed`` if its creation was, ``crashing`` if it ends by itself again and again, and
    ``serving`` if load balancers may send requests to it.
    """

    name: str
    http_port: int
    labels: tuple[str, ...]
    running: bool
    healthy: bool | None = None
    stopped: bool = False
    crashing: bool = False
    failed: bool = False
    serving: bool = False


@dataclass(frozen=True)
class HostedApps:
    """All apps on this host, and the engine that runs them.

    ``apps`` is sorted by name; while the engine does not answer, it is as last known.
    ``docker_state`` is ``running`` or ``unreachable``. ``docker_version`` is such as ``20.10.24``,
    None before the engine's first answer. ``docker_problem`` is why it is unreachable, for `status`
    alone.
    """

    apps: tuple[HostedApp, ...]
    docker_state: str
    docker_version: str | None
    docker_problem: str | None = None


NO_APPS_KNOWN = HostedApps(apps=(), docker_state="unreachable", docker_version=None)


@dataclass(frozen=True)
class AgentAddress:
    """Where this agent is reached: the host's name, the agent's URL, its port, and HTTPS or not."""

    hostname: str
    url: str
    port: int
    tls: bool


class Host:
    """The host whose heartbeats are sent.

    ``labels`` and ``kv`` do not change; ``kv`` holds the configured entries and the facts that the
    agent found. ``file_labels`` returns further labels at each heartbeat. ``warn`` is called once
    for each reason why labels are left out; ``left_out`` is how many the last heartbeat left out.
    """

    def __init__(
        self,
        *,
        address: AgentAddress,
        labels: Iterable[str],
        file_labels: Callable[[], Iterable[str]],
        kv: Mapping[str, str],
        warn: Callable[[str], None],
    ) -> None:
        self._labels = tuple(labels)
        self._file_labels = file_labels
        self._kv = {**kv, "agent.url": address.url}
        self._agent_labels = [f"prometheus:{AGENTS_SERVICE}:port:{address.port}"]
        if address.tls:
            self._agent_labels.append(f"prometheus:{AGENTS_SERVICE}:__scheme__:https")
        self._warn = warn
        self._faults: set[str] = set()
        self.left_out = 0

    def heartbeat(self, hosted_apps: HostedApps) -> Heartbeat:
        """Return the heartbeat; it is equal to the last one if nothing has changed."""
        kv = {**self._kv, **_hosted_kv(hosted_apps)}
        others = msgspec.json.encode(Heartbeat(labels=self._agent_labels, kv=kv))
        fitted = fit_labels(
            [*self._labels, *self._file_labels()],
            {app.name: list(app_labels(app)) for app in hosted_apps.apps},
            Room(MAX_LABELS - len(self._agent_labels), MAX_BYTES - len(others)),
        )
        for fault in sorted(fitted.faults - self._faults):
            self._warn(fault)
        self._faults, self.left_out = fitted.faults, fitted.left_out
        if self.left_out:
            kv[LEFT_OUT] = str(self.left_out)
        return Heartbeat(labels=[*fitted.labels, *self._agent_labels], kv=kv)


class HeartbeatBuilder:
    """Builds the present heartbeat; ``host`` may be replaced by one with other labels.

    ``hosted_apps`` returns the apps. It must neither fail nor take long. Its argument is that of
    ``heartbeat``.
    """

    def __init__(
        self, *, host: Host, hosted_apps: Callable[[float | None], Awaitable[HostedApps]]
    ) -> None:
        self.host = host
        self.last_hosted_apps = NO_APPS_KNOWN
        self._hosted_apps = hosted_apps

    async def heartbeat(self, within_seconds: float | None = None) -> Heartbeat:
        """Return the heartbeat as of now; ``within_seconds`` limits the wait for the engine."""
        self.last_hosted_apps = await self._hosted_apps(within_seconds)
        return self.host.heartbeat(self.last_hosted_apps)


def app_labels(app: HostedApp) -> Iterator[str]:
    """Yield what an app adds to its host's labels: name, whether it serves, and target groups.

    An app's label ``prometheus:SERVICE:KEY:VALUE`` becomes ``prometheus:SERVICE@APP:KEY:VALUE``, so
    that apps of one service keep their labels apart. Other labels of an app are not reported, nor
    is a label ``app`` of its own: of two equal labels the first is sent, so it could hide that the
    true name comes last.
    """
    yield f"app:{app.name}"
    if app.serving:
        yield f"serving:{app.name}:{app.http_port}"
    ports: dict[str, str | None] = {}
    for label in app.labels:
        kind, _, rest = label.partition(":")
        service, *key_value = rest.split(":", 2)
        if kind != "prometheus" or not service or len(key_value) == 1:
            continue
        instance = f"prometheus:{service}@{app.name}"
        if key_value[:1] != ["app"]:
            yield ":".join([instance, *key_value])
        ports.setdefault(instance, f"{instance}:port:{app.http_port}")
        if key_value and key_value[0] == "port":
            ports[instance] = None
    for instance, port in ports.items():
        if port is not None:
            yield port
        yield f"{instance}:app:{app.name}"


def _hosted_kv(hosted_apps: HostedApps) -> dict[str, str]:
    kv = {
        "docker.state": hosted_apps.docker_state,
        "apps.total": str(len(hosted_apps.apps)),
        "apps.running": str(sum(app.running for app in hosted_apps.apps)),
        "apps.stopped": str(sum(app.stopped for app in hosted_apps.apps)),
        "apps.unhealthy": str(sum(app.healthy is False for app in hosted_apps.apps)),
    }
    if hosted_apps.docker_version is not None:
        kv["docker.version"] = hosted_apps.docker_version
    states = ",".join(f"{app.name}={_state(app)}" for app in hosted_apps.apps)
    # Without the engine, no state is known.
    if hosted_apps.docker_state == "running" and 0 < len(states) <= MAX_VALUE:
        kv[APP_STATES] = states
    return kv


def _state(app: HostedApp) -> str:
    """Return the state of an app in one word."""
    if app.failed:
        return "failed"
    if app.stopped:
        return "stopped"
    if app.crashing:
        return "crashing"
    if not app.running:
        return "down"
    return "unhealthy" if app.healthy is False else "running"
