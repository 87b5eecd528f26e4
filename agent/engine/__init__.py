"""Docker Engine: the only package that knows docker-py and the API of the engine."""

from agent.engine.docker import DockerEngine
from agent.engine.logins import ImageRegistryLogin

__all__ = ["DockerEngine", "ImageRegistryLogin"]
