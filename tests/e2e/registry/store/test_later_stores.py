"""Stores that a later release has written, as after a downgrade."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from registry.store.nats.link import connected
from registry.store.options import NatsLogin
from tests.support.daemons import Daemon, Daemons, FreePort
from tests.support.e2e.commands import run_command
from tests.support.registry.nats.servers import NatsCluster

pytestmark = pytest.mark.real
TOP = Path(__file__).parents[4]
LATER_VERSION = 99
LATER_FORMAT = b'{"by":"later-1","uptime":1.0,"format":2}'


@pytest.fixture
def server(tmp_path: Path, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a NATS server."""
    with NatsCluster(folder=tmp_path / "nats", free_port=free_port) as server:
        yield server


def with_later_file(daemons: Daemons, path: Path) -> Daemon:
    """Return a registry that has ended, and whose file a later release has written since."""
    registry = daemons.registry(store=f"sqlite:///{path}")
    registry.terminate()
    with closing(sqlite3.connect(path)) as later:
        later.execute(f"PRAGMA user_version = {LATER_VERSION}")
    return registry


def with_later_bucket(daemons: Daemons, server: NatsCluster) -> Daemon:
    """Return a registry that has ended, and whose bucket a later release has written since."""
    registry = daemons.registry(store=server.url(), nats=server.settings())
    registry.terminate()
    asyncio.run(write_format(server))
    return registry


async def write_format(server: NatsCluster) -> None:
    """Mark a bucket as a later release does."""
    async with connected([server.url().rpartition("/")[0]], NatsLogin()) as link:
        await link.client.request("$KV.rollcall.registry.format", LATER_FORMAT, timeout=5)


@pytest.mark.parametrize("arguments", [[], ["check"]])
def test_a_file_is_rejected_with_the_status_after_which_systemd_tries_no_more(
    daemons: Daemons, tmp_path: Path, arguments: list[str]
) -> None:
    path = tmp_path / "registry.db"
    rejected = run_command("rollcall-registry", with_later_file(daemons, path), *arguments)

    assert rejected.returncode == status_that_systemd_takes_as_final()
    reported = rejected.stderr.splitlines()[-1]
    assert reported.startswith(f"rollcall-registry: {path} has schema version {LATER_VERSION}, ")
    assert reported.endswith(": run the release that wrote it, or a later one")


@pytest.mark.parametrize("arguments", [[], ["check"]])
def test_a_bucket_is_rejected_with_the_status_after_which_systemd_tries_no_more(
    daemons: Daemons, server: NatsCluster, arguments: list[str]
) -> None:
    rejected = run_command("rollcall-registry", with_later_bucket(daemons, server), *arguments)

    assert rejected.returncode == status_that_systemd_takes_as_final()
    assert rejected.stderr.splitlines()[-1] == (
        f"rollcall-registry: {server.url()} is written in format 2, this release knows format 1:"
        " run the release that wrote it, or a later one"
    )


def status_that_systemd_takes_as_final() -> int:
    """Return the exit status after which the unit does not start the registry again."""
    unit = (TOP / "systemd" / "rollcall-registry.service").read_text()
    [line] = [line for line in unit.splitlines() if line.startswith("RestartPreventExitStatus=")]
    return int(line.partition("=")[2])
