"""Every store keeps what the protocol promises."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from registry.store.nats.backend import NatsBackend
from registry.store.sqlite.backend import SqliteBackend
from tests.support.daemons import FreePort
from tests.support.registry.nats.servers import OLDEST_PROGRAM, NatsCluster
from tests.support.registry.stores.conformance import CHECKS, Check, Place
from tests.support.registry.stores.memory_store import MemoryPlace
from tests.support.registry.stores.shared_conformance import SHARED_CHECKS
from tests.support.registry.stores.sqlite_store import Batches


def memory(_folder: Path) -> Place:
    return MemoryPlace()


def sqlite(folder: Path) -> Place:
    backend = SqliteBackend(folder / "r.db")
    return lambda clock: backend.open(clock=clock, observe=Batches().observe)


class Servers(NamedTuple):
    """How many NATS servers, and which program."""

    size: int
    program: Path | None = None


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            Servers(1),
            id="1 server",
            marks=pytest.mark.release("one server of another version, and three, are tested"),
        ),
        pytest.param(Servers(3), id="3 servers"),
        pytest.param(Servers(1, OLDEST_PROGRAM), id="1 server of the oldest version"),
    ],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[NatsCluster]:
    """Yield NATS servers: one, then a cluster, then one that is as old as is accepted."""
    folder, (size, program) = tmp_path_factory.mktemp("nats"), request.param
    if program is not None and not program.exists():
        pytest.skip(f"needs {program}, which `make test` installs")
    cluster = NatsCluster(folder=folder, free_port=free_port, size=size)
    if program is not None:
        cluster.servers[0].program = program
    with cluster as running:
        yield running


def jetstream(servers: NatsCluster, check: Check) -> Place:
    """Return a bucket of the check's own."""
    backend = NatsBackend.from_url(servers.url(check.__name__[:60]), servers.options())
    assert backend is not None
    return lambda clock: backend.open(clock=clock, observe=Batches().observe)


@pytest.mark.parametrize("kind", [memory, sqlite], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_store_keeps_what_the_protocol_promises(
    check: Check, kind: Callable[[Path], Place], tmp_path: Path
) -> None:
    await check(kind(tmp_path))


@pytest.mark.real
@pytest.mark.parametrize("check", [*CHECKS, *SHARED_CHECKS], ids=lambda check: check.__name__)
async def test_a_bucket_keeps_what_the_protocol_promises(
    check: Check, servers: NatsCluster
) -> None:
    await check(jetstream(servers, check))
