import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.cli.command import Rollcall
from tests.support.cli.fake_agent import FakeAgent, StartAgent
from tests.support.cli.process import CommandLine, Run
from tests.support.registry.fake_servers import HttpServer
from tests.support.registry.in_process import OPS, InProcessRegistry, in_process_registry


@pytest.fixture
async def registry() -> AsyncIterator[InProcessRegistry]:
    """Yield a registry of this process."""
    async with in_process_registry() as running:
        yield running


@pytest.fixture
def fake_agent(http_server: HttpServer) -> StartAgent:
    """Return a function that starts an agent which answers as the test says."""

    async def start() -> FakeAgent:
        agent = FakeAgent()
        agent.url = await http_server(agent.answer, daemon="agent")
        return agent

    return start


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Return the file that holds the key."""
    file = tmp_path / "ops.key"
    file.touch(mode=0o600)
    file.write_text(f"{OPS}\n")
    return file


@pytest.fixture
def rollcall(tmp_path: Path, key_file: Path, registry: InProcessRegistry) -> Rollcall:
    """Return the command, with a context for the registry of this process."""
    command = Rollcall(tmp_path)
    host, port = registry.address
    command.use(
        registry=f"http://{host}:{port}",
        key_file=str(key_file),
        agent_key="same",
        allow_plain=["127.0.0.1"],
    )
    return command


@pytest.fixture
def run(rollcall: Rollcall) -> Run:
    """Return a function that runs the command in a process of its own."""
    return partial(asyncio.to_thread, CommandLine(rollcall.contexts.parent).run)
