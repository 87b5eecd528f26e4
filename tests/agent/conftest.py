"""What the tests of the agent share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest

from tests.support.agent.containers import STUBBORN, derived_image
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent


@pytest.fixture
async def agent(tmp_path: Path, engine_url: str) -> AsyncIterator[InProcessAgent]:
    """Yield an agent's apps over the real engine; the test's apps are deleted afterwards."""
    async with in_process_agent(tmp_path, engine_url) as running:
        yield running


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """Yield an engine of the test's own, which is not started yet."""
    with Dockerd() as engine:
        yield engine


@pytest.fixture(scope="session")
def failing_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield an image whose app says why and ends with exit code 3."""
    script = 'CMD ["/bin/sh", "-c", "echo no configuration here; exit 3"]'
    with derived_image(docker_client, busybox_image, script) as tag:
        yield tag


@pytest.fixture(scope="session")
def broken_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield an image whose program is missing."""
    with derived_image(docker_client, busybox_image, 'CMD ["/no/such/program"]') as tag:
        yield tag


@pytest.fixture(scope="session")
def hungry_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield an image whose app holds 16 MB."""
    script = "busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=16; sleep 999"
    with derived_image(docker_client, busybox_image, f'CMD ["/bin/sh", "-c", "{script}"]') as tag:
        yield tag


@pytest.fixture(scope="session")
def stubborn_image(docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield an image whose app does not heed SIGTERM, and is killed when its time is over."""
    with derived_image(docker_client, busybox_image, STUBBORN) as tag:
        yield tag
