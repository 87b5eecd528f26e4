"""What the tests of the operator's command share."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import docker
import docker.errors
import pytest

from dev.waiting import until
from tests.support.cli.agents import advertised_agent
from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon, Daemons, FreePort

SOON = 60.0


@pytest.fixture
def rollcall(tmp_path: Path) -> CommandLine:
    """Return the command, without any context."""
    return CommandLine(tmp_path)


class Host(NamedTuple):
    """The agent of web-1, the registry that lists it, and the file of contexts after a login."""

    registry: Daemon
    agent: Daemon
    contexts: str


@pytest.fixture(scope="module")
def host(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort, engine_url: str
) -> Iterator[Host]:
    """Yield a host for all tests of a module: each has an app of its own."""
    folder = tmp_path_factory.mktemp("host")
    with Daemons(folder=folder, free_port=free_port) as daemons:
        registry = daemons.registry()
        agent = advertised_agent(
            daemons, registry, hostname="web-1", engine=engine_url, apps={"data": "/www"}
        )
        until(lambda: registry.ask("GET", "/nodes/web-1").ok, "web-1", within=SOON)
        command = CommandLine(folder)
        command.login(registry)
        yield Host(registry, agent, command.contexts.read_text())


@pytest.fixture
def agent(host: Host, rollcall: CommandLine) -> Daemon:
    """Return the agent of web-1; the registry, where the command is logged in, knows web-0 too."""
    body = {"labels": [], "kv": {"agent.url": "http://127.0.0.1:1"}}
    host.registry.ask("POST", "/nodes/web-0", json=body).raise_for_status()
    rollcall.contexts.touch(mode=0o600)
    rollcall.contexts.write_text(host.contexts)
    return host.agent


@pytest.fixture
def app(agent: Daemon, docker_client: docker.APIClient) -> Iterator[str]:
    """Yield HOST/NAME for an app, which is removed afterwards."""
    name = f"cli-{secrets.token_hex(4)}"
    yield f"web-1/{name}"
    agent.ask("DELETE", f"/v1/apps/{name}")
    with suppress(docker.errors.NotFound):
        docker_client.remove_container(name, force=True)
