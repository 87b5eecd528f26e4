"""An app of an agent that is killed, observed from outside the agent."""

import io
import secrets
import tarfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import docker
import docker.errors

from dev.waiting import until
from tests.support.agent.containers import containers_of, run_in_container
from tests.support.daemons import Daemon

SETTLE_SECONDS = 120.0
# Of what revisions and records share, this shows nothing of the app itself.
NOT_CONTENT = {"revision", "created_at"}


class ObservedApp:
    """An app, observed through the agent's API and through the engine's.

    Attributes:
        agent: the agent that has the app.
        client: the engine that the agent uses.
        name: the app's name, which no other app has.
        content: what was last written into the app's volumes.

    """

    def __init__(self, agent: Daemon, client: docker.APIClient) -> None:
        self.agent = agent
        self.client = client
        self.name = f"victim-{secrets.token_hex(4)}"
        self.content = ""

    @property
    def path(self) -> str:
        """The app's path in the agent's API."""
        return f"/v1/apps/{self.name}"

    def volumes(self) -> dict[str, str]:
        """Return the names of the app's volumes, by path, as their labels tell."""
        label = {"label": f"rollcall.app={self.name}"}
        found = self.client.volumes(filters=label)["Volumes"] or ()
        volumes = {each["Labels"]["rollcall.path"]: each["Name"] for each in found}
        assert len(volumes) == len(found), "two volumes of one path"
        return volumes

    def mounts(self, container_id: str) -> dict[str, str]:
        """Return the names of the volumes in a container, by path."""
        mounts = self.client.inspect_container(container_id)["Mounts"]
        return {mount["Destination"]: mount["Name"] for mount in mounts}

    def network(self, container_id: str) -> str:
        """Return the name of the one network of a container, which need not run."""
        seen = self.client.inspect_container(container_id)
        (network,) = seen["NetworkSettings"]["Networks"]
        return str(network)

    def record(self) -> dict[str, Any] | None:
        """Return the app's record, None if there is no app."""
        answer = self.agent.ask("GET", self.path)
        assert answer.status_code in (200, 404), answer.text
        record: dict[str, Any] = answer.json()
        return record if answer.ok else None

    def settled(self) -> dict[str, Any] | None:
        """Wait until no operation runs; return the record, None if there is no app."""

        def quiet() -> bool:
            record = self.record()
            return record is None or record["progress"] is None

        until(quiet, "the end of the operation", within=SETTLE_SECONDS)
        return self.record()

    def swept(self) -> None:
        """Wait until no operation runs, and all containers but the app's own are removed."""

        def agreed() -> bool:
            record = self.settled()
            has_container = record is not None and record["container_id"] is not None
            return len(self.containers()) == int(has_container)

        until(agreed, "the sweep", within=SETTLE_SECONDS)

    def write(self) -> None:
        """Write new content into each volume of the running app."""
        self.content = secrets.token_hex(8)
        self._run(f"printf %s {self.content} > {{}}/file")

    def empty(self) -> None:
        """Remove the content from each volume of the running app."""
        self._run("busybox rm -f {}/file")

    def _run(self, command: str) -> None:
        """Run a command for the path of each volume, ``{}``."""
        record = self.record()
        assert record is not None
        paths = self.mounts(record["container_id"])
        run_in_container(self.client, record, "; ".join(command.format(path) for path in paths))

    def containers(self) -> list[dict[str, Any]]:
        """List the app's containers, as the engine does."""
        return containers_of(self.client, self.name)

    def check(self) -> None:
        """Assert that there is one container or no app, and that all records agree."""
        record, containers = self.settled(), self.containers()
        if record is None:
            assert containers == []
            return
        (container,) = containers
        self.check_container(record, container["Id"])
        assert record["state"] == ("running" if record["desired"] == "running" else "exited")
        assert self.read_file(container["Id"], "/srv/file") == self.content

    def check_container(self, record: Mapping[str, Any], container_id: str) -> None:
        """Assert that a record and its container agree."""
        assert record["container_id"] == container_id
        seen = self.client.inspect_container(container_id)
        assert seen["Name"] == f"/{self.name}"
        host = seen["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == record["memory"] << 20
        assert host["CpuQuota"] == record["cpu"] * 1000
        bindings = {int(each[0]["HostPort"]) for each in host["PortBindings"].values()}
        assert bindings == {record["ssh_port"], record["http_port"]}

    def check_history(self, record: Mapping[str, Any] | None) -> None:
        """Assert that the newest revision is the app as it is, and that none is there twice."""
        answer = self.agent.ask("GET", f"{self.path}/history")
        assert answer.status_code == (200 if record is not None else 404), answer.text
        if record is None or record["revision"] is None:
            assert record is None or answer.json() == []
            return
        revisions = answer.json()
        numbers = [each["revision"] for each in revisions]
        assert numbers == list(range(record["revision"], record["revision"] - len(numbers), -1))
        contents = [
            {field: each[field] for field in each.keys() & record.keys() - NOT_CONTENT}
            for each in revisions
        ]
        if record["image_id"] is not None:  # else the container is gone, and with it the image
            assert contents[0] == {field: record[field] for field in contents[0]}
        assert all(after != before for after, before in pairwise(contents))

    def read_file(self, container_id: str, path: str) -> str | None:
        """Read a file in a container, which need not run; None if there is no such file."""
        try:
            chunks, _ = self.client.get_archive(container_id, path)
        except docker.errors.NotFound:
            return None
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            assert file is not None
            return file.read().decode()

    def files(self, container_id: str) -> dict[str, bytes]:
        """Read all files of a small container, which need not run, and of its volumes, by path.

        For each archive, an engine starts a program that needs a twentieth of a second.
        """
        chunks, _ = self.client.get_archive(container_id, "/")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            return {
                str(PurePosixPath("/", member.name)): file.read()
                for member in archive.getmembers()
                if member.isreg() and (file := archive.extractfile(member)) is not None
            }

    def readers(self) -> list[dict[str, Any]]:
        """List the containers by which the app's data is read."""
        label = {"label": "rollcall.reads=yes"}
        return [
            container
            for container in self.client.containers(all=True, filters=label)
            if any(self._has_volume(mount) for mount in container["Mounts"])
        ]

    def _has_volume(self, mount: Mapping[str, Any]) -> bool:
        return str(mount.get("Name", "")).startswith(f"rollcall-{self.name}")

    def delete(self) -> None:
        """Remove the containers and the volumes."""
        for container in (*self.containers(), *self.readers()):
            self.client.remove_container(container["Id"], force=True)
        for volume in self.volumes().values():
            self.client.remove_volume(volume)
