"""A store of each kind to copy from, and one of each kind to copy into."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry.store.protocol import StoreBackend
from registry.store.sqlite.backend import SqliteBackend
from tests.support.daemons import FreePort
from tests.support.registry.nats.buckets import backend_at
from tests.support.registry.nats.servers import NatsCluster

NewStore = Callable[[str], StoreBackend]
BUCKET = pytest.param("bucket", marks=pytest.mark.real)
KINDS = ["file", BUCKET]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a NATS server."""
    with NatsCluster(folder=tmp_path_factory.mktemp("nats"), free_port=free_port) as running:
        yield running


def maker(kind: str, request: pytest.FixtureRequest, folder: Path) -> NewStore:
    """Return what names stores of a kind, of the test's own."""
    if kind == "file":
        return lambda name: SqliteBackend(folder / f"{name}.db")
    servers = request.getfixturevalue("servers")
    test = re.sub(r"\W", "_", request.node.name)[-50:]
    return lambda name: backend_at(servers.url(f"{test}-{name}"), servers.options())


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Return a store to copy from."""
    return maker(request.param, request, tmp_path)("source")


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Return a store to copy into."""
    return maker(request.param, request, tmp_path)("target")
