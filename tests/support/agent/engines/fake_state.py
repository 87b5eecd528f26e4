"""What a container engine in memory keeps, and what it reports its containers."""

from collections.abc import Mapping

import msgspec

from agent.engine.errors import ObjectNotFound
from agent.engine.models import (
    MIB,
    Container,
    ContainerSpec,
    Health,
    Image,
    InspectedContainer,
    Network,
    Sample,
)

TIME = "2026-01-31T12:00:00Z"


class FakeContainer(msgspec.Struct, kw_only=True):
    """A container; ``volumes`` by path; ``shadow`` is what was set as password."""

    id: str
    name: str
    image: str
    labels: dict[str, str]
    env: dict[str, str]
    bind: str = "0.0.0.0"
    ports: list[int]
    volumes: dict[str, str]
    cpu: int
    memory: int
    image_id: str
    network: str = "default"
    state: str = "created"
    restarts: int = 0
    stopped_at: float | None = None
    health: Health | None = None
    shadow: str = ""
    autostart: bool = True


BRIDGE = Network(name="bridge", interface="docker0", reachable=True, mtu=1500)


class FakeEngineState(msgspec.Struct, kw_only=True):
    """All that the engine keeps: containers by id, labels of volumes and networks by name."""

    containers: dict[str, FakeContainer] = {}
    volumes: dict[str, dict[str, str]] = {}
    networks: dict[str, Network] = msgspec.field(default_factory=lambda: {BRIDGE.name: BRIDGE})
    made: int = 0


def created(
    spec: ContainerSpec, container_id: str, *, image: Image, health: Health | None
) -> FakeContainer:
    """Return the container that the engine makes from a spec."""
    return FakeContainer(
        id=container_id,
        name=spec.name,
        image=spec.image,
        labels={**image.labels, **spec.labels},
        env=dict(spec.env),
        bind=spec.bind,
        ports=[host for _, host in spec.ports],
        volumes=dict(spec.volumes),
        cpu=spec.cpu,
        memory=spec.memory,
        image_id=image.id,
        health=health,
        network=spec.network or "default",
        autostart=spec.autostart,
    )


def has_label(labels: Mapping[str, str], label: str | None) -> bool:
    """Return whether KEY or KEY=VALUE is among these; True without a label."""
    key, _, value = (label or "").partition("=")
    return not key or (key in labels and (not value or labels[key] == value))


def listed(container: FakeContainer) -> Container:
    """Return a container as lists have it."""
    return Container(
        id=container.id,
        name=container.name,
        image=container.image,
        image_id=container.image_id,
        state=container.state,
        labels=container.labels,
        ports=dict.fromkeys(
            container.ports if container.state == "running" else (), container.bind
        ),
        health=container.health if container.state == "running" else None,
        network=container.network,
        volumes=container.volumes,
    )


def inspected(container: FakeContainer) -> InspectedContainer:
    """Return a container as it is inspected."""
    return InspectedContainer(
        **msgspec.structs.asdict(listed(container)),
        started_at=None if container.state == "created" else TIME,
        finished_at=TIME if container.state == "exited" else None,
        exit_code=0 if container.state == "exited" else None,
        restarts=container.restarts,
        oom_killed=False,
        error="",
        env=container.env,
        cpu=container.cpu,
        memory=container.memory,
        health_seconds=None if container.health is None else 0,
        autostart=container.autostart,
    )


def sampled(container: FakeContainer) -> Sample | None:
    """Return what a container uses, None if it does not run."""
    if container.state != "running":
        return None
    return Sample(
        cpu_ns=0,
        system_ns=0,
        cpus=4,
        memory_bytes=MIB,
        memory_limit_bytes=container.memory * MIB,
        network_rx_bytes=0,
        network_tx_bytes=0,
        block_read_bytes=0,
        block_write_bytes=0,
        pids=1,
    )


def file_of(container: FakeContainer, path: str) -> bytes:
    """Return the content of a file in a container, or raise ObjectNotFound."""
    files = {
        "/etc/passwd": "app:x:1000:1000::/:/bin/sh\n",
        "/etc/shadow": container.shadow + ":\n",
        "/bin/chpasswd": "",
    }
    if path not in files:
        raise ObjectNotFound(path)
    return files[path].encode()
