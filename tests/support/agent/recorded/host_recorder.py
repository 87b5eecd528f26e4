"""Records a host of the present version, with its apps, as `earlier_host.py` makes it again.

``python -m tests.support.agent.recorded.host_recorder`` writes the folder of the present schema
anew. It is run, as root, by `dev/shell/isolated.sh`, whenever the schema of agent.db has changed.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docker

from agent.state.store import SCHEMA_VERSION
from dev.waiting import until
from tests.support.agent.engines.dockerd import Dockerd
from tests.support.agent.recorded.earlier_host import (
    IDENTITY_FILES,
    IDS,
    RECORDED,
    SHOP,
    build_shop,
    engine_ids,
)
from tests.support.agent.recording_proxy import recording_proxy
from tests.support.daemons import Daemon, Daemons
from tests.support.machine.ports import FreePorts

SETTINGS = {"bind": "127.0.0.1", "stop_seconds": 1}
CREATION = re.compile(
    rb"POST /v[0-9.]+/containers/create[^\r\n]* HTTP/1\.1\r\n(?:[^\r\n]+\r\n)*?"
    rb"Content-Length: *([0-9]+)\r\n(?:[^\r\n]+\r\n)*\r\n",
    re.IGNORECASE,
)
BLOB = re.compile(r"X'([0-9A-F]*)'")
FOUND_SECONDS = 60.0


async def record_host(folder: Path) -> None:
    """Make a host on engine and agent of its own, and write what it is into a new folder."""
    with TemporaryDirectory() as place, Dockerd() as dockerd:
        dockerd.start()
        dockerd.build()
        async with recording_proxy(dockerd.url) as proxy:
            proxy.recording = True
            await asyncio.to_thread(_make, dockerd, proxy.url, Path(place))
            sent = [bytes(each) for each in proxy.sent]
        with closing(dockerd.client()) as client:
            _write(folder, client, Path(place) / "state", sent)


def _make(dockerd: Dockerd, url: str, place: Path) -> None:
    """Make the apps; the agent asks the engine at this address, and ends."""
    free_port = FreePorts()
    with (
        closing(dockerd.client()) as client,
        Daemons(folder=place / "daemons", free_port=free_port) as daemons,
    ):
        build_shop(client)
        (place / "state").mkdir(mode=0o700)
        store = f"sqlite:///{place}/state/agent.db"
        agent = daemons.agent(engine=url, apps=SETTINGS, store=store)
        until(lambda: agent.ask("GET", "/v1/apps").ok, "the apps", within=FOUND_SECONDS)
        _make_apps(agent, client)


def _make_apps(agent: Daemon, client: docker.APIClient) -> None:
    for number, name in enumerate(("shop", "stopped", "by-hand", "web")):
        ports = {"ssh_port": 21011 + number, "http_port": 22011 + number}
        body = {"name": name, "image": SHOP, "memory": 32, "cpu": 50, "pull": "missing"}
        _ask(agent, "POST", "", body | ports | {"data": ["/srv", "/uploads"]})
        _ask(agent, "PUT", f"/{name}/keys", "correct horse: battery")
    _ask(agent, "PUT", "/web", {"env": {"TOKEN": "other"}})
    _ask(agent, "POST", "", {"name": "kept", "image": SHOP, "memory": 32, "data": ["/srv"]})
    _ask(agent, "DELETE", "/kept?keep_data=true")
    check = {"command": ["/bin/sh", "-c", "exit 0"]}
    changes = {"env": {"TOKEN": "s3cret"}, "description": "Shop", "health": check}
    _ask(agent, "PUT", "/shop", changes)
    _ask(agent, "POST", "/shop/labels", {"Value": "service:shop"})
    _ask(agent, "PUT", "/stopped/stop")
    _ask(agent, "PUT", "/stopped/keys", "another password")
    client.stop(_ask(agent, "GET", "/by-hand")["container_id"], timeout=1)
    until(
        lambda: "stopped through" in (_ask(agent, "GET", "/by-hand")["message"] or ""),
        "the agent's heeding the stop",
        within=FOUND_SECONDS,
    )


def _ask(agent: Daemon, method: str, path: str, body: Any = None) -> Any:
    answer = agent.ask(method, f"/v1/apps{path}", json=body)
    assert answer.ok, answer.text
    return answer.json()


def _write(folder: Path, client: docker.APIClient, state: Path, sent: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    configs = [config for each in sent for config in _creations(each)]
    containers = [
        {
            "Id": each["Id"],
            "Name": each["Names"][0].removeprefix("/"),
            "Config": _config(configs, each["Labels"]),
        }
        for each in sorted(client.containers(all=True), key=lambda each: str(each["Names"]))
    ]
    volumes = [
        {"Name": each["Name"], "Labels": each["Labels"] or {}}
        for each in sorted(client.volumes()["Volumes"], key=lambda each: str(each["Name"]))
    ]
    _write_json(folder / "containers.json", containers)
    _write_json(folder / "volumes.json", volumes)
    _write_json(folder / IDS, engine_ids(client))
    for name in IDENTITY_FILES:
        content = json.loads((state / name).read_text("utf-8"))
        _write_json(folder / name, content | ({"machine": None} if "machine" in content else {}))
    with closing(sqlite3.connect(state / "agent.db")) as database:
        (folder / "agent.sql").write_text("\n".join([*_dump(database), ""]), "utf-8")


def _config(configs: Iterable[Any], labels: Mapping[str, str]) -> Any:
    """Return the config with these labels; a container has those of its image besides."""
    (config,) = [each for each in configs if each["Labels"].items() <= labels.items()]
    return config


def _creations(sent: bytes) -> Iterator[Any]:
    """Yield the bodies of the creations of containers among all that a connection has sent."""
    for request in CREATION.finditer(sent):
        yield json.loads(sent[request.end() : request.end() + int(request[1])])


def _dump(database: sqlite3.Connection) -> Iterator[str]:
    """Yield the statements that make a database again; blobs are shown as text."""
    for line in database.iterdump():
        yield BLOB.sub(lambda blob: _as_text(bytes.fromhex(blob[1])), line)
    for name in ("application_id", "user_version"):
        (value,) = database.execute(f"PRAGMA {name}").fetchone()
        yield f"PRAGMA {name} = {value};"


def _as_text(blob: bytes) -> str:
    return "CAST('{}' AS BLOB)".format(blob.decode().replace("'", "''"))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(record_host(RECORDED / f"schema_{SCHEMA_VERSION}"))
