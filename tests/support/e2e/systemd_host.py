"""A host of its own: a container in which systemd is process 1."""

import io
import secrets
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import docker

from dev.debian import SYSTEMD_HOST, debian_tree
from dev.waiting import until
from tests.support.images import imported

UP = ("running\n", "degraded\n")
# It would mount each cgroup controller of the kernel that is not mounted on this machine. No engine
# beside it could measure its containers then. Where mounts are not shared, credentials are empty.
BOOT = "mount --bind /dev/null /proc/cgroups && mount --make-rshared / && exec /lib/systemd/systemd"
BOOT_SECONDS = 60.0
ENVIRONMENT = {
    "container": "docker",
    "HOME": "/root",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


@dataclass(frozen=True)
class Attachment:
    """A network of the engine, and the address of a host in it."""

    network: str
    address: str


class SystemdHost:
    """A container in which systemd is process 1."""

    def __init__(self, *, client: docker.APIClient, container: str) -> None:
        self._client = client
        self._container = container

    def wait_until_booted(self) -> None:
        """Wait until systemd has started what it starts."""
        until(self._is_booted, "boot", within=BOOT_SECONDS)

    def _is_booted(self) -> bool:
        return self.try_to("systemctl is-system-running")[1] in UP

    def power_off(self) -> None:
        """End all processes at once, as if the power were cut; files stay."""
        self._client.kill(self._container)

    def power_on(self) -> None:
        """Boot the host again."""
        self._client.start(self._container)
        self.wait_until_booted()

    def copy_disk(self, tag: str) -> str:
        """Make an image of the host's files as they are, and return it."""
        repository, _, version = tag.partition(":")
        self._client.commit(self._container, repository=repository, tag=version)
        return tag

    def put(self, folder: Path, to: str = "/") -> None:
        """Copy what is in a folder to one of the host, the root if none is named."""
        self.run(f"mkdir -p {to}")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(folder, arcname=".")
        self._client.put_archive(self._container, to, buffer.getvalue())

    def run(self, line: str) -> str:
        """Run a line of shell, and return what it wrote."""
        status, output = self.try_to(line)
        assert status == 0, f"{line}\n{output}"
        return output

    def try_to(self, line: str) -> tuple[int, str]:
        """Run a line of shell, and return its exit status and what it wrote.

        An exec of the engine would take ten times the processor time.
        """
        systemd = self._client.inspect_container(self._container)["State"]["Pid"]
        # Not by a pipe: what the line leaves running would hold it open.
        with TemporaryFile() as output:
            done = subprocess.run(
                ["nsenter", "--all", f"--target={systemd}", "sh", "-euc", line],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
            output.seek(0)
            return done.returncode, output.read().decode()

    def state(self, unit: str) -> str:
        """Return a unit's state, such as ``active`` or ``failed``."""
        return self.try_to(f"systemctl is-active {unit}")[1].strip()

    def pid(self, unit: str) -> int:
        """Return the process id of a unit's daemon."""
        return int(self.run(f"systemctl show --property MainPID --value {unit}"))

    def address(self) -> str:
        """Return its address on the engine's network."""
        inspected = self._client.inspect_container(self._container)
        (network,) = inspected["NetworkSettings"]["Networks"].values()
        address: str = network["IPAddress"]
        return address


@contextmanager
def systemd_image(client: docker.APIClient, *more_packages: str) -> Iterator[str]:
    """Yield an image with systemd and further packages, for as long as this lasts."""
    tree = debian_tree(*SYSTEMD_HOST, *more_packages)
    with imported(client, tree, f"rollcall-test-systemd:{secrets.token_hex(4)}") as image:
        yield image


@contextmanager
def booted_host(
    client: docker.APIClient,
    image: str,
    *,
    name: str | None = None,
    hosts: Mapping[str, str] | None = None,
    engine_socket: str | None = None,
) -> Iterator[SystemdHost]:
    """Boot a host, and remove it at the end; ``hosts`` are names and addresses that it knows.

    One with the path of an engine's socket has this engine, and no network but its own loopback.
    """
    with ExitStack() as stack:
        settings = _container_settings(client, hosts or {}, engine_socket)
        if engine_socket is not None:
            settings["NetworkMode"] = "none"
        container = _boot(client, image, name=name, settings=settings)
        stack.callback(client.remove_container, container, force=True, v=True)
        host = SystemdHost(client=client, container=container)
        host.wait_until_booted()
        yield host


@contextmanager
def attached_host(
    client: docker.APIClient,
    image: str,
    attachment: Attachment,
    *,
    hosts: Mapping[str, str],
    hostname: str,
    engine_socket: str | None = None,
) -> Iterator[SystemdHost]:
    """Begin to boot a host with a hostname in a network, and remove it at the end.

    Its address stays the same when it boots again. ``hosts`` are as for ``booted_host``.
    """
    with ExitStack() as stack:
        settings = _container_settings(client, hosts, engine_socket)
        endpoint = client.create_endpoint_config(ipv4_address=attachment.address)
        container = _boot(
            client,
            image,
            settings={**settings, "NetworkMode": attachment.network},
            hostname=hostname,
            networking_config={"EndpointsConfig": {attachment.network: endpoint}},
        )
        stack.callback(client.remove_container, container, force=True, v=True)
        yield SystemdHost(client=client, container=container)


def _container_settings(
    client: docker.APIClient, hosts: Mapping[str, str], engine_socket: str | None
) -> dict[str, Any]:
    binds = ["/sys/fs/cgroup:/sys/fs/cgroup:rw"]
    if engine_socket is not None:
        binds.append(f"{engine_socket}:/run/docker.sock")
    settings: dict[str, Any] = client.create_host_config(
        cap_add=["SYS_ADMIN", "SYS_PTRACE"],
        security_opt=["seccomp=unconfined", "apparmor=unconfined"],
        binds=binds,
        tmpfs={"/run": "", "/run/lock": ""},
        cgroupns="host",
        extra_hosts=dict(hosts),
    )
    return settings


def _boot(
    client: docker.APIClient, image: str, *, settings: Mapping[str, Any], **options: Any
) -> str:
    made = client.create_container(
        image,
        ["/bin/sh", "-c", BOOT],
        environment={"container": ENVIRONMENT["container"]},
        host_config=dict(settings),
        **options,
    )
    container: str = made["Id"]
    client.start(container)
    return container
