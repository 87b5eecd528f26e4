"""The engine room: the one place that knows docker-py."""

from agent.engine.docker_engine import DockerEngine
from agent.engine.registry_logins import ImageRegistryLogin

__all__ = ["DockerEngine", "ImageRegistryLogin"]
