"""A server of images with a login, as Debian packages it, and one that stalls."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import docker
import docker.errors
import requests
import yaml

from dev.processes import end
from dev.waiting import until
from tests.support.servers import close_server

USER = "puller"
PASSWORD = "pull me, gently 7"


class ImageRegistry:
    """A running ``docker-registry``; ``server`` is its name in references."""

    def __init__(self, server: str) -> None:
        self.server = server

    def push(self, client: docker.APIClient, image: str, repository: str) -> str:
        """Push an image, remove it here, and return its reference."""
        reference = f"{self.server}/{repository}"
        client.tag(image, reference, tag="latest")
        login = {"username": USER, "password": PASSWORD}
        lines = client.push(reference, "latest", auth_config=login, stream=True, decode=True)
        failures = [line for line in lines if "error" in line]
        assert not failures, failures
        client.remove_image(f"{reference}:latest", force=True)
        return reference

    def forget(self, client: docker.APIClient) -> None:
        """Take away all names that the engine has for images of this server."""
        for image in client.images():
            names = [*(image["RepoTags"] or ()), *(image["RepoDigests"] or ())]
            for name in names:
                if name.startswith(f"{self.server}/") and not name.endswith(":<none>"):
                    with suppress(docker.errors.ImageNotFound):
                        client.remove_image(name, force=True)


@contextmanager
def image_registry(folder: Path, port: int) -> Iterator[ImageRegistry]:
    """Run a server of images that lets in whoever has the password."""
    folder.mkdir()
    hashed = subprocess.run(
        ["perl", "-e", r"print crypt($ARGV[0], '$2y$05$abcdefghijklmnopqrstuu')", PASSWORD],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    settings = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "auth": {"htpasswd": {"realm": "images", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(settings))
    program = shutil.which("docker-registry")
    assert program is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=log, stderr=log
        )

    def answers() -> bool:
        with suppress(requests.ConnectionError):
            login = (USER, PASSWORD)
            return requests.get(f"http://127.0.0.1:{port}/v2/", auth=login, timeout=5).ok
        return False

    try:
        until(answers, "the server of images", within=30)
        yield ImageRegistry(f"127.0.0.1:{port}")
    finally:
        end(process, within=30)


@asynccontextmanager
async def stalling_image_registry() -> AsyncIterator[str]:
    """Listen as a server of images that accepts a connection and then says nothing."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await close_server(server)
        for writer in writers:
            writer.close()
