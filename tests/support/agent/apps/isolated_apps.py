"""Isolated apps on an engine of the test's own, and its host."""

import shlex
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import docker

from tests.support.agent.engines.dockerd import Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent

ClientOf: TypeAlias = Callable[[Dockerd], docker.APIClient]
IPV6 = ("--ipv6", "--fixed-cidr-v6=fd00:5ca1:e::/64", "--ip6tables", "--experimental")


@asynccontextmanager
async def isolated(folder: Path, engine: Dockerd, **settings: Any) -> AsyncIterator[InProcessAgent]:
    """Run an agent whose apps are isolated; they are bound on all addresses, as hosts have them."""
    chosen: Any = {"isolated": True, "bind": "0.0.0.0"} | settings
    async with in_process_agent(folder, engine.url, keep=True, **chosen) as agent:
        yield agent


def on_host(engine: Dockerd, command: str) -> str:
    """Run a command in the network of the engine's host; return its output."""
    words = [*engine.inside(), *shlex.split(command)]
    return subprocess.check_output(words, text=True, timeout=30)
