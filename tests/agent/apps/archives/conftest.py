"""A stopped app with data on a real engine."""

from typing import Any

import docker
import pytest

from tests.support.agent.apps.transfers import PATHS
from tests.support.agent.containers import write_file
from tests.support.agent.in_process import InProcessAgent


@pytest.fixture
async def stopped(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> dict[str, Any]:
    """Return the record of a stopped app, with `before` in the file of its first volume."""
    record = await agent.create(busybox_image, data=PATHS)
    write_file(docker_client, record, "before")
    answer = await agent.ask("PUT", f"/{record['name']}/stop")
    assert answer.status == 200
    stopped: dict[str, Any] = answer.json
    return stopped
