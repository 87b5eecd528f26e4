"""The password of an app's user: set, kept through replacements, and never shown."""

import asyncssh
import docker
import pytest
from passlib.hash import sha512_crypt

from tests.support.agent.containers import (
    PASSWORD,
    TAKES_PASSWORDS,
    derived_image,
    password_hash,
    set_password,
)
from tests.support.agent.in_process import InProcessAgent
from tests.support.agent.ssh import log_in, until_ssh_answers
from tests.support.waiting import async_until

pytestmark = pytest.mark.real


async def test_the_password_opens_ssh_and_survives_rebuild_update_and_restart(
    agent: InProcessAgent, ssh_image: str
) -> None:
    record = await agent.create(ssh_image, memory=128)
    name = record["name"]
    await until_ssh_answers(record)

    await set_password(agent, record)
    assert await log_in(record, PASSWORD) == "app"
    with pytest.raises(asyncssh.PermissionDenied):
        await log_in(record, PASSWORD + "x")

    rebuilt = (await agent.ask("PUT", f"/{name}/rebuild")).json
    assert rebuilt["container_id"] != record["container_id"]
    await until_ssh_answers(rebuilt)
    assert await log_in(rebuilt, PASSWORD) == "app"

    wanted = {"ssh_port": rebuilt["http_port"], "http_port": rebuilt["ssh_port"]}
    updated = (await agent.ask("PUT", f"/{name}", wanted)).json
    await until_ssh_answers(updated)
    assert await log_in(updated, PASSWORD) == "app"

    await agent.ask("PUT", f"/{name}/stop")
    started = (await agent.ask("PUT", f"/{name}/start")).json
    await until_ssh_answers(started)
    assert await log_in(started, PASSWORD) == "app"


async def test_a_stopped_app_gets_the_password_when_it_starts(
    agent: InProcessAgent, ssh_image: str, docker_client: docker.APIClient
) -> None:
    record = await agent.create(ssh_image, memory=128)
    name = record["name"]
    await agent.ask("PUT", f"/{name}/stop")
    assert (await set_password(agent, record))["password"] == "pending"

    started = (await agent.ask("PUT", f"/{name}/start")).json

    assert started["password"] == "set"
    await until_ssh_answers(started)
    assert await log_in(started, PASSWORD) == "app"

    # Another container has the password from its first start on.
    await agent.ask("PUT", f"/{name}/stop")
    rebuilt = (await agent.ask("PUT", f"/{name}/rebuild")).json
    assert rebuilt["password"] == "pending"
    started = (await agent.ask("PUT", f"/{name}/start")).json
    await until_ssh_answers(started)
    assert await log_in(started, PASSWORD) == "app"

    # And so it is where somebody starts it by hand.
    await agent.ask("PUT", f"/{name}/stop")
    await set_password(agent, record, "another good password")
    docker_client.start(started["container_id"])
    await agent.until(name, password="set")
    await until_ssh_answers(started)
    assert await log_in(started, "another good password") == "app"


async def test_an_image_without_the_user_is_a_conflict(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    for operation in ("start", "stop"):
        await agent.ask("PUT", f"/{record['name']}/{operation}")

        answer = await agent.ask("PUT", f"/{record['name']}/keys", "a good password")

        assert answer.status == 409, operation
        assert "user `app`" in answer.json["message"] or "chpasswd" in answer.json["message"]
        assert (await agent.get(record["name"]))["password"] is None


async def test_an_update_to_an_image_that_cannot_take_the_password_is_undone(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    with derived_image(docker_client, busybox_image, files=TAKES_PASSWORDS) as image:
        record = await agent.create(image)
        await set_password(agent, record)

        answer = await agent.ask("PUT", f"/{record['name']}", {"image": busybox_image})

        assert answer.status == 409
        after = await agent.get(record["name"])
        assert (after["image"], after["container_id"]) == (image, record["container_id"])
        assert after["state"] == "running"
        assert sha512_crypt.verify(PASSWORD, password_hash(docker_client, after))
        await agent.ask("DELETE", f"/{record['name']}")


BODIES = [
    ("text/plain", b'"quoted word"', '"quoted word"'),
    ("application/json", b'"json: \\u00e4 word"', "json: ä word"),
    ("application/json", b"bare text word\n", "bare text word"),
    ("application/json", b"1234567890", "1234567890"),
    ("text/plain; charset=utf-8", "ümlaut word\n".encode(), "ümlaut word"),
    ("text/plain", b"x" * 511, "x" * 511),
    ("text/plain", b"x" + "ä".encode() * 255, "x" + "ä" * 255),
]


async def test_the_body_is_the_password_as_text_or_as_a_json_string(
    agent: InProcessAgent, docker_client: docker.APIClient, busybox_image: str
) -> None:
    with derived_image(docker_client, busybox_image, files=TAKES_PASSWORDS) as image:
        record = await agent.create(image)
        path = f"/{record['name']}"
        for content_type, body, password in BODIES:
            headers = {"Content-Type": content_type}
            answer = await agent.ask("PUT", path + "/keys", data=body, headers=headers)

            assert answer.status == 200, body
            assert sha512_crypt.verify(password, password_hash(docker_client, record)), body
        await agent.ask("DELETE", path)


NO_PASSWORDS = [
    b"short",
    b"x" * 512,
    "ä".encode() * 256,
    b"two\nlines of it",
    b"nul\0inside it",
    b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe",
    b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHcW someone@somewhere",
    b"",
]


async def test_what_cannot_be_a_password_is_rejected_without_repeating_it(
    agent: InProcessAgent, busybox_image: str
) -> None:
    record = await agent.create(busybox_image)
    for body in NO_PASSWORDS:
        answer = await agent.ask(
            "PUT", f"/{record['name']}/keys", data=body, headers={"Content-Type": "text/plain"}
        )

        assert answer.status == 400, body
        word = body.decode("utf-8", "replace").strip()
        assert not word or word not in answer.json["message"]


async def test_a_password_in_the_background_is_promised_and_the_record_shows_how_it_went(
    agent: InProcessAgent, busybox_image: str
) -> None:
    name = (await agent.create(busybox_image))["name"]

    answer = await agent.ask(
        "PUT", f"/{name}/keys", "a good password", headers={"Prefer": "respond-async"}
    )

    assert answer.status == 202
    assert answer.headers["Preference-Applied"] == "respond-async"
    await async_until(lambda: _reported(agent, name))
    record = await agent.get(name)
    assert "no password can be set" in record["message"] or "user `app`" in record["message"]
    assert record["password"] is None


async def _reported(agent: InProcessAgent, name: str) -> bool:
    return (await agent.get(name))["message"] is not None
