"""One NATS server for the tests of a module."""

import re
from collections.abc import Iterator

import pytest

from tests.support.daemons import FreePort
from tests.support.registry.nats.servers import NatsCluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, free_port: FreePort) -> Iterator[NatsCluster]:
    """Yield a server."""
    with NatsCluster(folder=tmp_path_factory.mktemp("nats"), free_port=free_port) as running:
        yield running


@pytest.fixture
def url(server: NatsCluster, request: pytest.FixtureRequest) -> str:
    """Return the URL of a bucket of the test's own."""
    return server.url(re.sub(r"\W", "_", request.node.name)[:60])
