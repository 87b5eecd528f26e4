"""A host as an earlier version of the agent left it: its containers, volumes and state.

Each folder of ``earlier_versions`` holds what that version sent to the engine, as a proxy recorded
it, and what it wrote into its state directory. Its hash of the machine's id is left out. From
schema 8 on, `host_recorder.py` writes these folders.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

from dev.images import build
from tests.support.agent.engines.dockerd import IMAGE

RECORDED = Path(__file__).parents[3] / "e2e" / "agent" / "earlier_versions"
IDENTITY_FILES = ("identity.json", "identities.json")
# What an engine has drawn: the ids of the images, and that of its run.
IDS = "ids.json"
SHOP = "shop"
SHOP_DOCKERFILE = f"""\
FROM {IMAGE}
COPY . /
VOLUME /data /cache
"""
# Sufficient for the agent, which sets the hash of one user.
CHPASSWD = b"""#!/bin/sh
IFS= read -r line && printf '%s:19000:0:99999:7:::\\n' "$line" > /etc/shadow
"""
PASSWD = b"root:x:0:0:root:/:/bin/sh\napp:x:1:1::/:/bin/sh\n"


def engine_ids(client: docker.APIClient) -> dict[str, str]:
    """Return what an engine has drawn that a database may hold, by its meaning."""
    ids = {"run": client.inspect_network("bridge")["Id"]}
    for name in (IMAGE, SHOP):
        (image,) = client.images(name=name)
        ids[f"image {name}"] = image["Id"]
    return ids


def build_shop(client: docker.APIClient) -> None:
    """Build the image of the apps."""
    build(client, SHOP, SHOP_DOCKERFILE, {"bin/chpasswd": CHPASSWD, "etc/passwd": PASSWD})


class EarlierHost:
    """Makes what a version had made, whose ``recorded`` folder is named after its schema.

    Attributes:
        containers: The id of each container, by its name.
        database: The agent's database, beside its other files.

    """

    def __init__(self, recorded: Path, client: docker.APIClient, folder: Path) -> None:
        self._recorded = recorded
        self._client = client
        self.containers = dict[str, str]()
        self.database = folder / "agent.db"

    def make(self) -> None:
        """Make the volumes, the containers, which are not started, and the state directory."""
        build_shop(self._client)
        for volume in self._read("volumes.json"):
            self._client.create_volume(volume["Name"], labels=volume["Labels"])
        text = (self._recorded / "agent.sql").read_text("utf-8")
        present = engine_ids(self._client)
        for name, recorded in self._read(IDS).items() if (self._recorded / IDS).exists() else ():
            text = text.replace(recorded, present[name])
        for container in self._read("containers.json"):
            made = self._create(container["Name"], container["Config"])
            self.containers[container["Name"]] = made
            text = text.replace(container["Id"], made)
        self.database.parent.mkdir(mode=0o700)
        with closing(sqlite3.connect(self.database)) as database:
            database.executescript(text)
        for name in IDENTITY_FILES:
            if (self._recorded / name).exists():
                (self.database.parent / name).write_text((self._recorded / name).read_text("utf-8"))

    def _read(self, name: str) -> Any:
        return json.loads((self._recorded / name).read_text("utf-8"))

    def _create(self, name: str, config: Any) -> str:
        url = f"{self._client.base_url}/v{self._client.api_version}/containers/create"
        answer = self._client.post(url, params={"name": name}, json=config)
        assert answer.ok, answer.text
        return str(answer.json()["Id"])
