"""Clients of the engines that tests of isolated apps start."""

from collections.abc import Iterator
from contextlib import ExitStack

import docker
import pytest

from tests.support.agent.apps.isolated_apps import ClientOf
from tests.support.agent.engines.dockerd import Dockerd


@pytest.fixture
def client_of() -> Iterator[ClientOf]:
    """Yield a function that makes a client of an engine; all are closed after the test."""
    with ExitStack() as stack:

        def make(engine: Dockerd) -> docker.APIClient:
            client = engine.client()
            stack.callback(client.close)
            return client

        yield make
