"""Images, as an engine lists them while others remove some."""

import pytest

from agent.engine.engine import Engine
from agent.engine.errors import AnswerTooLong, EngineError, ImageTooLarge
from agent.engine.http import LONGEST_ANSWER
from agent.engine.reads import LIST_TRIES, LONGEST_IMAGE
from tests.support.agent.engines.fake_docker_api import FakeDockerApi

IMAGE = {"Id": "sha256:1", "RepoTags": ["shop:1"], "RepoDigests": []}
GONE = [
    {"message": "content digest sha256:2: not found"},
    {"message": "No such image: sha256:2"},
]


@pytest.mark.parametrize("gone", GONE)
async def test_images_are_listed_though_one_is_removed_meanwhile(
    engine: Engine, fake: FakeDockerApi, gone: object
) -> None:
    fake.respond("GET /images/json", (404, gone), (404, gone), (200, [IMAGE]))

    assert [image.tags for image in await engine.images()] == [{"shop:1"}]


async def test_a_list_of_images_that_never_comes_is_an_error(
    engine: Engine, fake: FakeDockerApi
) -> None:
    fake.respond("GET /images/json", *[(404, GONE[0])] * (LIST_TRIES + 1))

    with pytest.raises(EngineError, match="content digest"):
        await engine.images()


async def test_an_image_that_is_too_large_is_not_read_to_its_end(
    engine: Engine, fake: FakeDockerApi
) -> None:
    labels = {"a": "a" * LONGEST_IMAGE}
    fake.respond("GET /images/shop:1/json", (200, {**IMAGE, "Config": {"Labels": labels}}))

    with pytest.raises(ImageTooLarge, match="takes more than 1048576 bytes; build it with less"):
        await engine.image("shop:1")


async def test_a_list_of_images_that_is_too_long_is_reported_with_what_helps(
    engine: Engine, fake: FakeDockerApi
) -> None:
    fake.respond("GET /images/json", (200, "x" * LONGEST_ANSWER))

    with pytest.raises(AnswerTooLong, match="docker rmi"):
        await engine.images()
