"""The engine room: the one place that knows docker-py and the API of Docker Engine."""

from agent.engine.docker import DockerEngine
from agent.engine.logins import ImageRegistryLogin

__all__ = ["DockerEngine", "ImageRegistryLogin"]
