"""PostgreSQL, Redis and a web server keep their data, and get it back, as their users write it."""

import asyncio
import io
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import docker
import pytest

from tests.support.agent.containers import run_in_container
from tests.support.agent.in_process import OPERATOR, InProcessAgent
from tests.support.agent.service_images import SERVICES, Service, service_images
from tests.support.requirements import need_root
from tests.support.waiting import async_until

pytestmark = [
    pytest.mark.real("mmdebstrap"),
    pytest.mark.long(1),
    pytest.mark.release("three real services, from a Debian tree of their own"),
]


@pytest.fixture(scope="module")
def images(docker_client: docker.APIClient) -> Iterator[Mapping[str, tuple[str, str]]]:
    """Yield the images of the services and their next versions, by name."""
    need_root()
    with service_images(docker_client, secrets.token_hex(4)) as tags:
        yield tags


class RunningService:
    """A service that runs as an app."""

    def __init__(
        self, agent: InProcessAgent, client: docker.APIClient, service: Service, name: str
    ) -> None:
        self._agent = agent
        self._client = client
        self._service = service
        self._name = name

    async def run(self, script: str) -> str | None:
        """Run a script in the app's container; return its output, None if it fails."""
        record = await self._agent.get(self._name)
        with suppress(AssertionError, docker.errors.APIError):
            return (await asyncio.to_thread(run_in_container, self._client, record, script)).strip()
        return None

    async def write(self, word: str) -> None:
        """Write a word, as soon as the service takes it."""

        async def written() -> bool:
            return await self.run(self._service.write.format(word=word)) is not None

        await async_until(written, within=60)

    async def until_it_has(self, word: str) -> None:
        """Wait until the service answers with a word."""

        async def has_it() -> bool:
            return await self.run(self._service.read) == word

        await async_until(has_it, within=60)

    async def killed_comes_back(self) -> None:
        """Kill the app by hand, and wait until the agent has started it again."""
        before = await self._agent.get(self._name)
        self._client.kill(before["container_id"])

        async def runs_again() -> bool:
            now = await self._agent.get(self._name)
            return bool(now["state"] == "running" and now["started_at"] != before["started_at"])

        await async_until(runs_again, within=60)

    async def change(self, path: str, body: Any = None) -> None:
        """Change the app."""
        answer = await self._agent.ask("PUT", f"/{self._name}{path}", body)
        assert answer.status == 200, answer.json

    async def keep(self, word: str, path: str, body: Any = None) -> None:
        """Change the app, and wait until it has the word that it had."""
        await self.change(path, body)
        await self.until_it_has(word)


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_data_outlives_every_change_and_comes_back_from_a_copy(
    agent: InProcessAgent,
    docker_client: docker.APIClient,
    images: Mapping[str, tuple[str, str]],
    service: Service,
) -> None:
    fields = {"memory": 256, "cpu": 100, "stop_seconds": 30, **service.fields}
    image, following = images[service.name]
    record = await agent.create(image, name=agent.name(service.name), **fields)
    name, url = record["name"], f"{agent.base_url}/v1/apps/{record['name']}/data"
    running = RunningService(agent, docker_client, service, name)
    key = {"Authorization": f"Bearer {OPERATOR}"}

    await running.write("first")
    await running.keep("first", "", {"env": {"VERSION": "2"}})
    await running.keep("first", "", {"image": following})
    assert (await agent.get(name))["image_id"] != record["image_id"]
    await running.keep("first", "/rebuild")
    await running.write("second")
    await running.change("/rollback", {"revision": 1})
    after = await agent.get(name)
    assert (after["env"], after["image_id"]) == ({}, record["image_id"])
    await running.until_it_has("second")
    await running.write("first")

    await running.killed_comes_back()
    await running.until_it_has("first")

    async with agent.session.get(f"{url}?pause=true", headers=key) as response:
        assert response.status == 200
        tar = await response.read()
    await agent.until(name, state="running", progress=None)
    await running.write("second")
    await running.until_it_has("second")
    await running.change("/stop")
    async with agent.session.put(url, headers=key, data=io.BytesIO(tar)) as response:
        assert response.status == 200, await response.text()
    await running.keep("first", "/start")
