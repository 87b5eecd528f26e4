"""A `chpasswd` that is the app's own program, and does what it likes instead of its work."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import docker
import pytest

from tests.support.agent.containers import WITH_USER, derived_image, run_in_container
from tests.support.agent.in_process import InProcessAgent, in_process_agent
from tests.support.run.release import some_of

pytestmark = pytest.mark.real

HANGS = "while true; do sleep 1; done > /dev/null 2>&1"
HANGS_SILENTLY_BEHIND_ITS_END = f"( {HANGS} ) & exec > /dev/null 2>&1; {HANGS}"
WRITES_FOR_EVER = "while true; do echo more; busybox usleep 10000; done"


@pytest.fixture(
    params=some_of(
        [HANGS, HANGS_SILENTLY_BEHIND_ITS_END, WRITES_FOR_EVER],
        HANGS_SILENTLY_BEHIND_ITS_END,
        reason="further programs that hang, for whose end each test waits",
    )
)
def hostile_image(
    request: pytest.FixtureRequest, docker_client: docker.APIClient, busybox_image: str
) -> Iterator[str]:
    """Yield an image with the user `app` whose chpasswd never ends."""
    files = {**WITH_USER, "bin/chpasswd": f"#!/bin/sh\n{request.param}\n".encode()}
    with derived_image(docker_client, busybox_image, files=files) as tag:
        yield tag


@pytest.fixture
async def impatient_agent(tmp_path: Path, engine_url: str) -> AsyncIterator[InProcessAgent]:
    """Yield apps whose agent does not wait long for its engine, nor for a program in an app."""
    async with in_process_agent(tmp_path, engine_url, timeout_seconds=20) as agent:
        yield agent


async def test_a_password_program_that_never_ends_is_rejected_and_holds_up_nothing(
    impatient_agent: InProcessAgent, hostile_image: str
) -> None:
    record = await impatient_agent.create(hostile_image)
    name = record["name"]

    # Of 503 it would not be known whether a thread is still busy with it.
    answer = await impatient_agent.ask("PUT", f"/{name}/keys", "a good password")

    assert answer.status == 409, answer.json
    assert "the `chpasswd` of the app's image does not end" in answer.json["message"]
    after = await impatient_agent.get(name)
    assert (after["password"], after["progress"]) == (None, None)
    assert (await impatient_agent.ask("PUT", f"/{name}/stop")).json["state"] == "exited"
    assert (await impatient_agent.ask("DELETE", f"/{name}")).status == 200


async def test_a_stopped_app_with_such_a_program_starts_without_its_password(
    impatient_agent: InProcessAgent, hostile_image: str
) -> None:
    name = (await impatient_agent.create(hostile_image))["name"]
    await impatient_agent.ask("PUT", f"/{name}/stop")
    assert (await impatient_agent.ask("PUT", f"/{name}/keys", "a good password")).json[
        "password"
    ] == "pending"

    started = await impatient_agent.ask("PUT", f"/{name}/start")

    assert started.status == 200, started.json
    assert (started.json["state"], started.json["password"]) == ("running", None)
    assert "the password was dropped" in started.json["message"]


async def test_a_password_waits_while_the_program_fails_for_a_user_that_is_there(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    """As that of the shadow package does while the disk is full."""
    fails = b"#!/bin/sh\n[ -e /srv/room ] || exit 1\ncat >/given\n"
    files = {**WITH_USER, "bin/chpasswd": fails}
    with derived_image(docker_client, busybox_image, files=files) as image:
        name = (await agent.create(image))["name"]
        rejected = await agent.ask("PUT", f"/{name}/keys", "a good password")
        await agent.ask("PUT", f"/{name}/stop")
        await agent.ask("PUT", f"/{name}/keys", "a good password")

        started = await agent.ask("PUT", f"/{name}/start")
        run_in_container(docker_client, started.json, "touch /srv/room")
        after = await agent.until(name, password="set", message=None)
        given = run_in_container(docker_client, after, "cat /given")
        await agent.ask("DELETE", f"/{name}")

    assert (rejected.status, rejected.json["message"].partition(",")[0]) == (
        409,
        "the password of `app` is not set: its `chpasswd` ended with exit code 1",
    )
    assert (started.status, started.json["password"]) == (200, "pending")
    assert started.json["message"].endswith("it is tried again")
    assert given.startswith("app:$6$")


async def test_a_password_program_that_fails_is_rejected_with_its_exit_code_and_not_its_words(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    fails = b"#!/bin/sh\ncat\nexit 5\n"  # it repeats the hash that it is given
    with derived_image(docker_client, busybox_image, files={"bin/chpasswd": fails}) as image:
        name = (await agent.create(image))["name"]

        answer = await agent.ask("PUT", f"/{name}/keys", "a good password")
        await agent.ask("DELETE", f"/{name}")

    assert answer.status == 409
    assert "`chpasswd` ended with exit code 5" in answer.json["message"]
    assert "$6$" not in f"{answer.json} {agent.log.entries}"
