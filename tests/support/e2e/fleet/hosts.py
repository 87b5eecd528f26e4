"""Hosts in a network of their own, which their operator reaches by ssh."""

import os
import secrets
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import docker

from tests.support.e2e.systemd_host import Attachment, SystemdHost, attached_host, systemd_image

# Addresses for tests of networks (RFC 2544), which no other network of an engine has.
ADDRESSES = "198.18.77"
SSH_CONFIG = """\
Host *
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile {folder}/known
  LogLevel ERROR
  ControlMaster auto
  ControlPath {folder}/%n
  ControlPersist 60
"""


class FleetHosts:
    """The hosts of a fleet, by their names."""

    def __init__(
        self, client: docker.APIClient, image: str, *, network: str, engine_socket: str
    ) -> None:
        self._client = client
        self._image = image
        self._network = network
        self._engine_socket = engine_socket
        self.addresses: dict[str, str] = {}

    @contextmanager
    def booted(
        self, names: Sequence[str], *, with_engine: Sequence[str]
    ) -> Iterator[dict[str, SystemdHost]]:
        """Boot hosts side by side that know one another; some of them have an engine."""
        numbers = range(10, 10 + len(names))
        self.addresses = {
            name: f"{ADDRESSES}.{number}" for name, number in zip(names, numbers, strict=True)
        }
        with ExitStack() as stack:
            started = {
                name: stack.enter_context(self._host(name, with_engine=name in with_engine))
                for name in names
            }
            for host in started.values():
                host.wait_until_booted()
            yield started

    @contextmanager
    def clone(self, name: str, host: SystemdHost) -> Iterator[SystemdHost]:
        """Boot a copy of a host, with all its files, in which no engine runs."""
        image = host.copy_disk(f"rollcall-test-clone:{secrets.token_hex(4)}")
        attachment = Attachment(self._network, f"{ADDRESSES}.99")
        with ExitStack() as stack:
            stack.callback(self._client.remove_image, image)
            clone = attached_host(
                self._client, image, attachment, hosts=self.addresses, hostname=name
            )
            booted = stack.enter_context(clone)
            booted.wait_until_booted()
            yield booted

    @contextmanager
    def _host(self, name: str, *, with_engine: bool) -> Iterator[SystemdHost]:
        attachment = Attachment(self._network, self.addresses[name])
        with attached_host(
            self._client,
            self._image,
            attachment,
            hosts={other: each for other, each in self.addresses.items() if other != name},
            hostname=name,
            engine_socket=self._engine_socket if with_engine else None,
        ) as host:
            yield host


@contextmanager
def fleet_hosts(client: docker.APIClient, *, engine_socket: str) -> Iterator[FleetHosts]:
    """Make a network that reaches nothing beyond this machine, and an image for its hosts."""
    with ExitStack() as stack:
        image = stack.enter_context(systemd_image(client))
        pool = docker.types.IPAMPool(subnet=f"{ADDRESSES}.0/24")
        network = client.create_network(
            f"rollcall-test-fleet-{secrets.token_hex(4)}",
            internal=True,
            ipam=docker.types.IPAMConfig(pool_configs=[pool]),
        )["Id"]
        stack.callback(client.remove_network, network)
        yield FleetHosts(client, image, network=network, engine_socket=engine_socket)


@dataclass(frozen=True)
class SshAccess:
    """How root of each host is reached.

    Attributes:
        config: the settings for ``ssh -F``, in which the hosts have their names.
        names: a file like /etc/hosts, with the names of the hosts.

    """

    config: Path
    names: Path

    def with_names(self) -> list[str]:
        """Return a command that becomes the one given to it, for which the hosts have names."""
        line = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return ["unshare", "--mount", "sh", "-euc", line, str(self.names)]


@contextmanager
def ssh_access(
    hosts: Mapping[str, SystemdHost], addresses: Mapping[str, str]
) -> Iterator[SshAccess]:
    """Let the holder of a new key log in as root of each host."""
    # The path of a socket is short.
    with TemporaryDirectory(prefix="rollcall-ssh-") as name:
        folder = Path(name)
        key, config, names = folder / "key", folder / "config", folder / "names"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        public = key.with_suffix(".pub").read_text().strip()
        for host in hosts.values():
            host.run(f"umask 077; mkdir -p /root/.ssh; echo '{public}' >/root/.ssh/authorized_keys")
        known = "".join(f"Host {each}\n  HostName {addresses[each]}\n" for each in hosts)
        config.write_text(known + SSH_CONFIG.format(folder=folder))
        names.write_text("".join(f"{addresses[each]} {each}\n" for each in hosts))
        try:
            yield SshAccess(config, names)
        finally:
            _end_connections(config, hosts)


def _end_connections(config: Path, hosts: Iterable[str]) -> None:
    for name in hosts:
        command = ["ssh", "-F", str(config), "-O", "exit", name]
        subprocess.run(command, capture_output=True, check=False)  # there may be none


def share_engine_socket(socket: str, hosts: Sequence[SystemdHost]) -> None:
    """Let the group docker of the hosts use the engine's socket, as that of its own host does."""
    for host in hosts:
        host.run("groupadd --system docker")
    (group,) = {host.run("getent group docker").split(":")[2] for host in hosts}
    os.chown(socket, -1, int(group))
