"""Containers and images of apps, looked at and made without the agent."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import docker
import docker.errors

from dev.images import build
from tests.support.agent.in_process import InProcessAgent
from tests.support.agent.tars import packed
from tests.support.containers import execute

# An app that does not heed SIGTERM, and is killed when its time is over.
STUBBORN = """CMD ["/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"]"""
PASSWORD = "correct horse: battery"
NO_FILES: Mapping[str, bytes] = MappingProxyType({})
# An `/etc/passwd` with the user whose password is set.
WITH_USER = {"etc/passwd": b"root:x:0:0:root:/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"}
# Sufficient for the agent, which sets the hash of one user.
CHPASSWD = b"""#!/bin/sh
IFS= read -r line && printf '%s:19000:0:99999:7:::\\n' "$line" > /etc/shadow
"""
TAKES_PASSWORDS = {**WITH_USER, "bin/chpasswd": CHPASSWD}


def limits(client: docker.APIClient, record: dict[str, Any]) -> tuple[int, int, int, int]:
    """Return the limits of an app in the engine: period, quota, memory, memory and swap."""
    host = client.inspect_container(record["container_id"])["HostConfig"]
    return host["CpuPeriod"], host["CpuQuota"], host["Memory"], host["MemorySwap"]


def containers_of(client: docker.APIClient, name: str) -> list[dict[str, Any]]:
    """List the containers of an app, as the engine has them."""
    found: list[dict[str, Any]] = client.containers(
        all=True, filters={"label": f"rollcall.app={name}"}
    )
    return found


def write_file(client: docker.APIClient, record: dict[str, Any], text: str) -> None:
    """Write a file into an app's volume. The app may end as soon as it finds the file."""
    assert client.put_archive(record["container_id"], "/srv", packed({"file": text.encode()}))


def read_file(client: docker.APIClient, record: dict[str, Any]) -> str:
    """Read the file in an app's volume."""
    return run_in_container(client, record, "cat /srv/file")


def run_in_container(client: docker.APIClient, record: dict[str, Any], script: str) -> str:
    """Run a script in an app's container; return its output."""
    status, output = execute(client, record["container_id"], script)
    assert status == 0, output
    return output


def password_hash(client: docker.APIClient, record: dict[str, Any]) -> str:
    """Return the hash of the password of an app's user, of an image with that `chpasswd`."""
    user, hashed, *_ = run_in_container(client, record, "cat /etc/shadow").split(":")
    assert user == "app"
    return hashed


@contextmanager
def derived_image(
    client: docker.APIClient, base: str, lines: str = "", files: Mapping[str, bytes] = NO_FILES
) -> Iterator[str]:
    """Build an image from another with more lines in its Dockerfile; delete it at the end.

    ``files`` are copied into it. A line that runs a command costs as much as the start of an app.
    """
    tag = f"rollcall-test-variant:{secrets.token_hex(4)}"
    copy = "COPY . /\n" if files else ""
    build(client, tag, f"FROM {base}\n{copy}{lines}\n", files)
    try:
        yield tag
    finally:
        client.remove_image(tag, force=True)


async def set_password(
    agent: InProcessAgent, record: dict[str, Any], password: str = PASSWORD
) -> Any:
    """Set the password of an app; return its record."""
    answer = await agent.ask(
        "PUT",
        f"/{record['name']}/keys",
        data=password.encode(),
        headers={"Content-Type": "text/plain"},
    )
    assert answer.status == 200, answer.json
    assert answer.json["password"] in ("set", "pending")
    return answer.json


def has_image(client: docker.APIClient, image: str) -> bool:
    """Return whether an image is on this host; `image` is its id or one of its tags.

    An engine with the containerd image store lists none at all while one is being removed.
    """
    while True:
        with suppress(docker.errors.NotFound):
            listed = client.images()
            return any(image in {each["Id"], *(each["RepoTags"] or ())} for each in listed)
