"""Why an app does not start, in words that help."""

import asyncio
import hashlib
import io
import json
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.support.agent.apps.isolated_apps import on_host
from tests.support.agent.containers import derived_image
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import InProcessAgent, in_process_agent

pytestmark = pytest.mark.real("dockerd", "unshare", "ip", "iptables")


@contextmanager
def image_for_another_cpu(client: docker.APIClient, image: str) -> Iterator[str]:
    """Yield a copy of an image that says that it was built for s390x."""
    saved = io.BytesIO(b"".join(client.get_image(image)))
    with tarfile.open(fileobj=saved) as archive:
        content = {each.name: archive.extractfile(each) for each in archive if each.isfile()}
        files = {name: file.read() for name, file in content.items() if file is not None}
    (manifest,) = json.loads(files["manifest.json"])
    config = {**json.loads(files.pop(manifest["Config"])), "architecture": "s390x"}
    encoded, tag = json.dumps(config).encode(), f"rollcall-test-cpu:{secrets.token_hex(4)}"
    name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    files |= {name: encoded}
    files["manifest.json"] = json.dumps([{**manifest, "Config": name, "RepoTags": [tag]}]).encode()
    files.pop("repositories", None)
    changed = io.BytesIO()
    with tarfile.open(fileobj=changed, mode="w") as archive:
        for path, body in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    untyped: Any = client
    for _ in untyped.load_image(changed.getvalue()):
        pass
    try:
        yield tag
    finally:
        client.remove_image(tag)


async def test_an_image_for_another_cpu_that_does_not_run_is_named_as_the_cause(
    agent: InProcessAgent, busybox_image: str, docker_client: docker.APIClient
) -> None:
    script = 'CMD ["/bin/sh", "-c", "echo garbage; exit 2"]'
    with (
        derived_image(docker_client, busybox_image, script) as broken,
        image_for_another_cpu(docker_client, broken) as image,
    ):
        answer = await agent.ask("POST", "", {"name": agent.name(), "image": image})

    assert answer.status == 409
    assert "its image is built for the CPU s390x; use one for" in answer.json["message"]


async def test_rules_of_a_firewall_that_are_gone_are_named_as_the_cause(
    dockerd: Dockerd, tmp_path: Path
) -> None:
    dockerd.start()
    dockerd.build()
    async with in_process_agent(tmp_path, dockerd.url, keep=True) as agent:
        name = (await agent.create(IMAGE))["name"]
        await agent.ask("PUT", f"/{name}/stop")
        for command in ("-t nat -F", "-t nat -X DOCKER"):
            await asyncio.to_thread(on_host, dockerd, f"iptables {command}")

        answer = await agent.ask("PUT", f"/{name}/start")

    assert answer.status == 409
    assert "its ports cannot be published: " in answer.json["message"]
    assert "restart the container engine" in answer.json["message"]
    assert "external connectivity" not in answer.json["message"]
