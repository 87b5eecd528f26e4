"""Images, as an engine lists them while others remove some."""

import pytest

from agent.engine.docker.engine import DockerEngine
from agent.engine.docker.images import LIST_TRIES
from agent.engine.errors import EngineError
from tests.support.agent.engines.fake_docker_api import FakeDockerApi

IMAGE = {"Id": "sha256:1", "RepoTags": ["shop:1"], "RepoDigests": []}
GONE = [
    {"message": "content digest sha256:2: not found"},
    {"message": "No such image: sha256:2"},
]


@pytest.mark.parametrize("gone", GONE)
async def test_images_are_listed_though_one_is_removed_meanwhile(
    engine: DockerEngine, fake: FakeDockerApi, gone: object
) -> None:
    fake.respond("GET /images/json", (404, gone), (404, gone), (200, [IMAGE]))

    assert [image.tags for image in await engine.images()] == [{"shop:1"}]


async def test_a_list_of_images_that_never_comes_is_an_error(
    engine: DockerEngine, fake: FakeDockerApi
) -> None:
    fake.respond("GET /images/json", *[(404, GONE[0])] * (LIST_TRIES + 1))

    with pytest.raises(EngineError, match="content digest"):
        await engine.images()
