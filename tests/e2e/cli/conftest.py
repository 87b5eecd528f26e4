"""What the tests of the operator's command share."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import docker
import docker.errors
import pytest

from dev.waiting import until
from tests.support.cli.agents import advertised_agent
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon, Daemons

SOON = 60.0


@pytest.fixture
def rollcall(tmp_path: Path) -> CommandLine:
    """Return the command, without any context."""
    return CommandLine(tmp_path)


@pytest.fixture
def agent(daemons: Daemons, rollcall: CommandLine, engine_url: str) -> Daemon:
    """Return the agent of web-1; the registry, where the command is logged in, knows web-0 too."""
    registry = daemons.registry()
    body = {"labels": [], "kv": {"agent.url": "http://127.0.0.1:1"}}
    registry.ask("POST", "/nodes/web-0", json=body).raise_for_status()
    started = advertised_agent(
        daemons, registry, hostname="web-1", engine=engine_url, apps={"data": "/www"}
    )
    rollcall.login(registry)
    until(lambda: "web-1" in rollcall.ok("nodes", "-o", "name"), "web-1", within=SOON)
    return started


@pytest.fixture
def app(agent: Daemon, docker_client: docker.APIClient) -> Iterator[str]:
    """Yield HOST/NAME for an app, which is removed afterwards."""
    name = f"cli-{secrets.token_hex(4)}"
    yield f"web-1/{name}"
    agent.ask("DELETE", f"/v1/apps/{name}")
    with suppress(docker.errors.NotFound):
        docker_client.remove_container(name, force=True)
