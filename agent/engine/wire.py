"""The engine's two busiest answers: as much of them as is read, and what it means."""

from collections.abc import Mapping

import msgspec

from agent.engine.protocol import Container, InspectedContainer
from agent.engine.shapes import MIB, NEVER, PERIOD, environment


class _Answer(msgspec.Struct, rename="pascal", gc=False):
    pass


class Port(_Answer):
    """A port of a container, and that of the host while it is published."""

    public_port: int = 0
    type: str = "tcp"


class Listed(_Answer):
    """An entry of the list of containers."""

    id: str
    image: str
    state: str
    image_id: str = msgspec.field(name="ImageID")
    names: list[str] | None = None
    labels: dict[str, str] | None = None
    ports: list[Port] | None = None


class State(_Answer):
    """How a container is."""

    status: str
    exit_code: int
    started_at: str
    finished_at: str
    oom_killed: bool = msgspec.field(name="OOMKilled")
    error: str = ""


class Config(_Answer):
    """What a container was made from."""

    image: str
    labels: dict[str, str] | None = None
    env: list[str] | None = None


class Binding(_Answer):
    """A port of the host that leads into a container."""

    host_port: str = ""


class HostConfig(_Answer):
    """What the host grants a container."""

    cpu_quota: int = 0
    memory: int = 0


class NetworkSettings(_Answer):
    """What leads into a container at present."""

    ports: dict[str, list[Binding] | None] | None = None


class Inspected(_Answer):
    """What an inspect tells."""

    id: str
    name: str
    image: str
    created: str
    restart_count: int
    state: State
    config: Config
    host_config: HostConfig
    network_settings: NetworkSettings


LISTING = msgspec.json.Decoder(list[Listed])
INSPECT = msgspec.json.Decoder(Inspected)


def from_listing(entry: Listed) -> Container:
    """Read one entry of the list of containers."""
    names = [name.removeprefix("/") for name in entry.names or ()]
    return Container(
        id=entry.id,
        name=next((name for name in names if "/" not in name), ""),
        image=entry.image,
        image_id=entry.image_id,
        state=entry.state,
        labels=entry.labels or {},
        ports=frozenset(
            port.public_port
            for port in entry.ports or ()
            if port.public_port and port.type == "tcp"  # one of UDP is another port
        ),
    )


def from_inspect(entry: Inspected) -> InspectedContainer:
    """Read what an inspect tells of a container."""
    state, config, host = entry.state, entry.config, entry.host_config
    return InspectedContainer(
        id=entry.id,
        name=entry.name.removeprefix("/"),
        image=config.image,
        image_id=entry.image,
        state=state.status,
        labels=config.labels or {},
        ports=_published(entry.network_settings.ports or {}),
        started_at=_time(state.started_at),
        finished_at=_time(state.finished_at),
        exit_code=_exit_code(state),
        restarts=entry.restart_count,
        oom_killed=state.oom_killed,
        error=state.error,
        env=environment(config.env),
        cpu=host.cpu_quota * 100 // PERIOD,
        memory=host.memory // MIB,
        created_at=_time(entry.created),
    )


def _exit_code(state: State) -> int | None:
    # While it runs again, the engine says 0.
    unknown = state.status in ("running", "paused") or _time(state.finished_at) is None
    return None if unknown else state.exit_code


def _published(bindings: Mapping[str, list[Binding] | None]) -> frozenset[int]:
    # One port of the container may answer on two of the host.
    return frozenset(
        int(outside.host_port)
        for leading_in in bindings.values()
        for outside in leading_in or ()
        if outside.host_port.isdecimal()
    )


def _time(text: str) -> str | None:
    return None if text in ("", NEVER) else text
