"""What this host says of itself: its labels and its key-values."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from registry.message import MAX_BODY_BYTES, MAX_LABELS, Heartbeat, label_error

AGENT_KV_KEYS = frozenset(
    {
        "agent.id",
        "agent.url",
        "agent.version",
        "apps.running",
        "apps.total",
        "docker.state",
        "docker.version",
        "host.arch",
        "host.cpus",
        "host.kernel",
        "host.memory_mib",
        "host.os",
    }
)


@dataclass(frozen=True)
class HostedApp:
    """An app as the roll call needs it.

    ``http_port`` is the host's TCP port that leads to the app's own; ``labels`` are the app's, in
    the order in which they were added; ``running`` tells whether its container runs.
    """

    name: str
    http_port: int
    labels: tuple[str, ...]
    running: bool


@dataclass(frozen=True)
class HostedApps:
    """All apps on this host, and the engine under them.

    ``apps`` is sorted by name, and as last known where the engine does not answer.
    ``docker_state`` is ``running`` or ``unreachable``; ``docker_version`` is such as ``20.10.24``,
    None until the engine has answered once.
    """

    apps: tuple[HostedApp, ...]
    docker_state: str
    docker_version: str | None


class Host:
    """The host as the registries are to know it.

    ``labels`` are the configured ones, ``dynamic_labels`` is asked at each heartbeat for those that
    come and go; ``kv`` are the configured entries (none of OWN_ENTRIES), ``facts`` those that the
    agent found out. ``port`` is where the agent's own /metrics is reached, ``tls`` whether by
    HTTPS. ``warn`` is told, once, what had to be left out.
    """

    def __init__(
        self,
        *,
        labels: Iterable[str],
        dynamic_labels: Callable[[], Iterable[str]],
        kv: Mapping[str, str],
        facts: Mapping[str, str],
        port: int,
        tls: bool,
        warn: Callable[[str], None],
    ) -> None:
        self._labels = tuple(labels)
        self._dynamic_labels = dynamic_labels
        self._kv = {**kv, **facts}
        self._agent_labels = [f"prometheus:rollcall:port:{port}"]
        if tls:
            self._agent_labels.append("prometheus:rollcall:__scheme__:https")
        self._warn = warn
        self._faults: set[str] = set()

    def heartbeat(self, hosted_apps: HostedApps) -> Heartbeat:
        """Give the message for the registries; equal as long as nothing has changed."""
        labels = [*self._labels, *self._dynamic_labels()]
        for app in hosted_apps.apps:
            labels += app_labels(app)
        kv = {**self._kv, **_counts(hosted_apps)}
        limit = MAX_BODY_BYTES - len(
            msgspec.json.encode(Heartbeat(labels=self._agent_labels, kv=kv))
        )
        return Heartbeat(labels=[*self._valid_labels(labels, limit), *self._agent_labels], kv=kv)

    def _valid_labels(self, labels: list[str], max_bytes: int) -> list[str]:
        """Leave out what a registry would refuse, so that the rest is taken."""
        faults = {f"label {label[:80]!a}: {fault}" for label, fault in _invalid_labels(labels)}
        valid = [label for label in dict.fromkeys(labels) if label_error(label) is None]
        limit = min(MAX_LABELS - len(self._agent_labels), _count_fitting(valid, max_bytes))
        if len(valid) > limit:
            faults.add(f"{len(valid)} labels, of which the first {limit} are sent")
        for fault in sorted(faults - self._faults):
            self._warn(fault)
        self._faults = faults
        return valid[:limit]


def app_labels(app: HostedApp) -> Iterator[str]:
    """Give what an app adds to its host's labels: its name, and a target group for each service.

    An app's labels stay its own: ``prometheus:SERVICE:KEY:VALUE`` becomes
    ``prometheus:SERVICE@APP:KEY:VALUE``, and no other label of an app is a label of the host.
    """
    yield f"app:{app.name}"
    ports: dict[str, str | None] = {}
    for label in app.labels:
        kind, _, rest = label.partition(":")
        service, *key_value = rest.split(":", 2)
        if kind != "prometheus" or not service or len(key_value) == 1:
            continue
        instance = f"prometheus:{service}@{app.name}"
        yield ":".join([instance, *key_value])
        ports.setdefault(instance, f"{instance}:port:{app.http_port}")
        if key_value and key_value[0] == "port":
            ports[instance] = None
    for instance, port in ports.items():
        if port is not None:
            yield port
        yield f"{instance}:app:{app.name}"


def _invalid_labels(labels: Iterable[str]) -> Iterator[tuple[str, str]]:
    for label in labels:
        fault = label_error(label)
        if fault is not None:
            yield label, fault


def _count_fitting(labels: Iterable[str], max_bytes: int) -> int:
    """Count how many of the labels, from the first on, fit into a message."""
    sizes = accumulate(len(msgspec.json.encode(label)) + len(",") for label in labels)
    return sum(size <= max_bytes for size in sizes)


def _counts(hosted_apps: HostedApps) -> dict[str, str]:
    counts = {
        "docker.state": hosted_apps.docker_state,
        "apps.total": str(len(hosted_apps.apps)),
        "apps.running": str(sum(app.running for app in hosted_apps.apps)),
    }
    if hosted_apps.docker_version is not None:
        counts["docker.version"] = hosted_apps.docker_version
    return counts
