"""The data of apps out and in, over a real engine, and what is left of it there."""

import io
from collections.abc import Mapping
from typing import Any

import docker

from tests.support.agent.in_process import OPERATOR, InProcessAgent

PATHS = ["/srv", "/var/lib/app"]
HEADERS = {"Authorization": f"Bearer {OPERATOR}"}


def url(agent: InProcessAgent, record: Mapping[str, Any]) -> str:
    """Return the address of an app's data."""
    return f"{agent.base_url}/v1/apps/{record['name']}/data"


async def get(agent: InProcessAgent, record: Mapping[str, Any]) -> bytes:
    """Return the tar of an app's data."""
    async with agent.session.get(url(agent, record), headers=HEADERS) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "application/x-tar"
        return await response.read()


async def put(agent: InProcessAgent, record: Mapping[str, Any], tar: Any) -> tuple[int, Any]:
    """Send a tar, or the pieces of one; return the status and the answer."""
    data = io.BytesIO(tar) if isinstance(tar, bytes) else tar
    async with agent.session.put(url(agent, record), headers=HEADERS, data=data) as response:
        return response.status, await response.json()


def volumes_of(client: docker.APIClient, name: str) -> set[str]:
    """Return the names of the volumes that are labelled with an app."""
    found = client.volumes(filters={"label": f"rollcall.app={name}"})["Volumes"] or ()
    return {volume["Name"] for volume in found}


def helpers_of(client: docker.APIClient, name: str) -> list[Any]:
    """List the containers by which an app's data is read or filled."""
    return [each for each in client.containers(all=True) if f"/{name}.DATA-" in each["Names"][0]]
