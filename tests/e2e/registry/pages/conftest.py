"""One registry for the tests of a module, each of which begins without nodes."""

from collections.abc import Iterator

import pytest

from tests.support.daemons import Daemon, Daemons, FreePort


@pytest.fixture(scope="module")
def shared_registry(
    tmp_path_factory: pytest.TempPathFactory, free_port: FreePort
) -> Iterator[Daemon]:
    """Yield the registry, with the nodes that the tests so far have left."""
    folder = tmp_path_factory.mktemp("page") / "daemons"
    with Daemons(folder=folder, free_port=free_port) as daemons:
        yield daemons.registry()


@pytest.fixture
def registry(shared_registry: Daemon) -> Daemon:
    """Return the registry, without nodes."""
    for node in shared_registry.ask("GET", "/nodes").json():
        assert shared_registry.ask("DELETE", f"/nodes/{node['hostname']}").ok
    return shared_registry
