"""A host as an earlier version of the agent left it: its containers, volumes and state.

Each folder of ``earlier_versions`` holds what that version sent to the engine, as a proxy recorded
it, and what it wrote into its state directory. Its hash of the machine's id is left out.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

from dev.images import build
from tests.support.agent.engines.dockerd import IMAGE

RECORDED = Path(__file__).parents[2] / "e2e" / "agent" / "earlier_versions"
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


class EarlierHost:
    """Makes what a version, named after its schema of agent.db, had made.

    Attributes:
        containers: The id of each container, by its name.
        database: The agent's database, beside its other files.

    """

    def __init__(self, version: str, client: docker.APIClient, folder: Path) -> None:
        self._recorded = RECORDED / version
        self._client = client
        self.containers = dict[str, str]()
        self.database = folder / "agent.db"

    def make(self) -> None:
        """Make the volumes, the containers, which are not started, and the state directory."""
        files = {"bin/chpasswd": CHPASSWD, "etc/passwd": PASSWD}
        build(self._client, SHOP, SHOP_DOCKERFILE, files)
        for volume in self._read("volumes.json"):
            self._client.create_volume(volume["Name"], labels=volume["Labels"])
        text = (self._recorded / "agent.sql").read_text("utf-8")
        for container in self._read("containers.json"):
            made = self._create(container["Name"], container["Config"])
            self.containers[container["Name"]] = made
            text = text.replace(container["Id"], made)
        self.database.parent.mkdir(mode=0o700)
        with closing(sqlite3.connect(self.database)) as database:
            database.executescript(text)
        identity = (self._recorded / "identity.json").read_text("utf-8")
        (self.database.parent / "identity.json").write_text(identity)

    def _read(self, name: str) -> Any:
        return json.loads((self._recorded / name).read_text("utf-8"))

    def _create(self, name: str, config: Any) -> str:
        url = f"{self._client.base_url}/v{self._client.api_version}/containers/create"
        answer = self._client.post(url, params={"name": name}, json=config)
        assert answer.ok, answer.text
        return str(answer.json()["Id"])
