"""Real engines that fail at one thing, for tests of what the apps make of it."""

import time
from collections.abc import AsyncGenerator
from dataclasses import replace

import docker

from agent.engine.errors import EngineRejected, EngineUnavailable
from agent.engine.models import (
    ContainerEvent,
    ContainerSpec,
    InspectedContainer,
)
from tests.support.agent.engines.real_engine import RealEngine


class UnremovableEngine(RealEngine):
    """A real engine that does not remove containers while it is stuck."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.stuck = False
        self.tries: list[float] = []

    async def remove(self, container_id: str) -> None:
        if self.stuck:
            self.tries.append(time.monotonic())
            raise EngineRejected("device or resource busy")
        await super().remove(container_id)


class VanishingEngine(RealEngine):
    """A real engine that goes away whenever a container is to be started."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.left: list[str] = []

    async def start(self, container_id: str) -> None:
        self.left.append(container_id)
        raise EngineUnavailable("the container engine went away")


class ContestedNameEngine(RealEngine):
    """A real engine on which somebody is quicker at making a container of any name."""

    rival = ""

    async def create(self, spec: ContainerSpec) -> str:
        self.rival = await super().create(
            replace(spec, labels={}, volumes={"/srv": "rollcall-rival"})
        )
        return await super().create(spec)


class FixedLimitsEngine(RealEngine):
    """A real engine that changes no limits."""

    async def limit(self, container_id: str, *, cpu: int, memory: int) -> None:
        raise EngineRejected(f"{container_id} does not take cpu={cpu} memory={memory}")


class ContestedVolumeEngine(RealEngine):
    """A real engine on which somebody takes an app's volume right before the app cannot start."""

    def __init__(self, url: str, client: docker.APIClient, image: str) -> None:
        super().__init__(url)
        self._docker = client
        self._image = image
        self.rival = ""

    async def start(self, container_id: str) -> None:
        mount = self._docker.inspect_container(container_id)["Mounts"][0]["Name"]
        host = self._docker.create_host_config(binds=[f"{mount}:/d"])
        self.rival = self._docker.create_container(self._image, host_config=host)["Id"]
        raise EngineRejected("it cannot be started")


class MalformedEventsEngine(RealEngine):
    """A real engine whose events are not what they should be at first."""

    babbled = 0

    async def events(self, label: str, *, since: float) -> AsyncGenerator[ContainerEvent]:
        if self.babbled < 2:
            self.babbled += 1
            raise KeyError("Actor")
        async for event in super().events(label, since=since):
            yield event


class UnreadableEngine(RealEngine):
    """A real engine that cannot tell of some containers, and of no file in any."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.unseen = ""

    async def inspect(self, container_id: str) -> InspectedContainer:
        if container_id == self.unseen:
            raise EngineRejected("layer does not exist")
        return await super().inspect(container_id)

    async def read_file(self, container_id: str, path: str) -> bytes:
        raise EngineRejected(f"{path} in {container_id} cannot be read")
