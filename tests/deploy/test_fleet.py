"""A fleet from its installation on, test after test: a registry's host, three hosts and Prometheus.

Each host is a container with systemd, in a network that the test makes. The agents share the engine
of this machine, as several agents may: each knows its own apps by its identity. An engine in each
container would need more of the kernel than a container has here, and room for images of its own.
It is here because it installs the packages that the tests of this folder build once.
"""

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.daemons import FreePort
from tests.support.e2e.fleet.alerts import (
    HOST_STALE,
    RULES,
    fleet_settings,
    rules_without_waits,
)
from tests.support.e2e.fleet.hosts import (
    FleetHosts,
    SshAccess,
    fleet_hosts,
    share_engine_socket,
    ssh_access,
)
from tests.support.e2e.fleet.operator import Operator
from tests.support.e2e.packages import NEXT_VERSION, VERSION, Packages
from tests.support.e2e.rollout_page import REGISTRY
from tests.support.e2e.systemd_host import SystemdHost
from tests.support.pages import Page, run
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.long,
    pytest.mark.real("dpkg-deb", "debootstrap", "ssh", "curl", "openssl", "unshare", "prometheus"),
    pytest.mark.timeout(900),
]
AGENTS = UPGRADED, PURGED, STOPPED = tuple(f"web-{number}.example.com" for number in (1, 2, 3))
UNIT = "rollcall-agent"
STALE_SECONDS = 20
SOON_SECONDS = 90.0
CLONES_REFUSED = 'rollcall_registry_heartbeats_refused_total{reason="clone"} > 0'
SECTIONS = (
    "1. Name the machines",
    "2. Create a CA",
    "3. Set up the registry",
    "4. Set up the hosts",
    "5. Look at the result",
)
# The next release refuses heartbeats that come more often than every five seconds.
ADDED = {
    "store: sqlite:///var/lib/rollcall-registry/registry.db": (
        f"nodes: {{warm_up_seconds: 0, stale_after_seconds: {STALE_SECONDS}}}"
    ),
    "store: sqlite:///var/lib/rollcall-agent/agent.db": "heartbeat_seconds: 5",
}
# The names of the hosts are known to what runs below this alone.
WITH_NAMES = (
    *("unshare", "--mount", "sh", "-euc"),
    'mount --bind "$0" /etc/hosts && exec "$@"',
)


@dataclass(frozen=True)
class Fleet:
    """Hosts by their names, on which the daemons run, and whoever looks after them."""

    machines: FleetHosts
    hosts: dict[str, SystemdHost]
    operator: Operator
    prometheus: Prometheus

    def up(self, host: str) -> str | None:
        """Return what Prometheus last got of a host: 1, 0, or None if it is no target."""
        samples = self.prometheus.query(f'up{{job="rollcall", instance="{host}:7656"}}')
        return samples[0]["value"][1] if samples else None

    def heard_since(self, moment: int) -> bool:
        """Return whether the registry has heard of every host since a moment."""
        nodes = self.operator.nodes()
        return nodes.keys() == set(AGENTS) and all(
            node["last_update"] > moment for node in nodes.values()
        )

    def alerts(self) -> list[str]:
        """Return the names of the alerts that fire."""
        samples = self.prometheus.query('ALERTS{alertstate="firing"}')
        return [sample["metric"]["alertname"] for sample in samples]

    def accepted(self, host: str) -> bool:
        """Return whether a host's own status is that the registry has accepted its heartbeat."""
        return self.hosts[host].try_to("rollcall-agent status")[0] == 0


@pytest.fixture(scope="module")
def fleet(
    docker_client: docker.APIClient,
    engine_url: str,
    packages: Packages,
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
) -> Iterator[Fleet]:
    """Return a fleet in which every daemon runs."""
    need_root()
    socket = engine_url.removeprefix("unix://")
    work = tmp_path_factory.mktemp("work")
    with ExitStack() as stack:
        stack.callback(os.chown, socket, -1, Path(socket).stat().st_gid)
        machines = stack.enter_context(fleet_hosts(docker_client, engine_socket=socket))
        hosts = stack.enter_context(machines.booted((REGISTRY, *AGENTS), with_engine=AGENTS))
        share_engine_socket(socket, [hosts[name] for name in AGENTS])
        access = stack.enter_context(ssh_access(hosts, machines.addresses))
        set_up(packages, hosts, work, access)
        settings = fleet_settings(work, rules_without_waits(RULES, work))
        prometheus = stack.enter_context(
            running_prometheus(
                settings,
                folder=tmp_path_factory.mktemp("prometheus"),
                port=free_port(),
                within=(*WITH_NAMES, str(access.names)),
            )
        )
        yield Fleet(machines, hosts, Operator(work, machines.addresses), prometheus)


def set_up(
    packages: Packages, hosts: dict[str, SystemdHost], work: Path, access: SshAccess
) -> None:
    """Install the package on all hosts, and follow the page about rolling out."""
    files, tools = work.with_name("packages"), work.with_name("tools")
    (files / "packages").mkdir(parents=True)
    shutil.copy(packages.present, files / "packages")
    shutil.copy(packages.following, files / "packages")
    tools.mkdir()
    for host in hosts.values():
        host.put(files)
        install(host, packages.present)
    for program in ("ssh", "scp"):
        (tools / program).write_text(
            f'#!/bin/sh\nexec /usr/bin/{program} -F {access.config} "$@"\n'
        )
        (tools / program).chmod(0o755)
    script = Page("docs/rollout.md").script(only=SECTIONS)
    for line, more in ADDED.items():
        assert line in script
        script = script.replace(line, f"{line}\n{more}")
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = (*WITH_NAMES, str(access.names), "bash", "-c")
    names = " ".join(AGENTS)
    script = re.sub("^HOSTS=.*$", f'HOSTS="{names}"', script, flags=re.MULTILINE)
    run(
        script,
        folder=work,
        environment={**os.environ, "PATH": path, "no_proxy": "*"},
        shell=shell,
    )


def install(host: SystemdHost, package: Path) -> None:
    """Install a package as docs/packages.md says."""
    host.run(
        "DEBIAN_FRONTEND=noninteractive apt-get install --yes -o Dpkg::Options::=--force-confold"
        f" /packages/{package.name}"
    )


def refusal(host: SystemdHost) -> str:
    """Return what a host's status says of a refused clone, "" if it says nothing of one."""
    said = host.try_to("rollcall-agent status")[1]
    return said if "clone_refused" in said else ""


@pytest.fixture(scope="module")
def app(fleet: Fleet, docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Return the id of the container of an app on the host that is upgraded."""
    name = f"fleet-{secrets.token_hex(4)}"
    fleet.operator.create_app(UPGRADED, {"name": name, "image": busybox_image, "pull": "never"})
    (found,) = docker_client.containers(filters={"name": name})
    container: str = found["Id"]
    yield container
    docker_client.remove_container(container, force=True, v=True)


def test_all_hosts_register_and_are_up_in_prometheus(fleet: Fleet) -> None:
    until(lambda: fleet.operator.fresh(STALE_SECONDS) == set(AGENTS), "nodes", within=SOON_SECONDS)

    until(lambda: {fleet.up(host) for host in AGENTS} == {"1"}, "targets", within=SOON_SECONDS)

    assert all(fleet.accepted(host) for host in AGENTS)
    assert fleet.alerts() == []


def test_an_upgrade_restarts_no_app_and_loses_no_target(
    fleet: Fleet, packages: Packages, app: str, docker_client: docker.APIClient
) -> None:
    host, node = fleet.hosts[UPGRADED], fleet.operator.nodes()[UPGRADED]
    pid, started = host.pid(UNIT), docker_client.inspect_container(app)["State"]["StartedAt"]
    assert node["kv"]["agent.version"] == VERSION
    begin = time.time()

    install(host, packages.following)

    until(
        lambda: fleet.operator.nodes()[UPGRADED]["kv"]["agent.version"] == NEXT_VERSION,
        "a heartbeat of the new version",
        within=SOON_SECONDS,
    )
    assert host.pid(UNIT) != pid
    state = docker_client.inspect_container(app)["State"]
    assert (state["Running"], state["StartedAt"]) == (True, started)
    assert fleet.operator.nodes()[UPGRADED]["kv"]["agent.id"] == node["kv"]["agent.id"]
    until(lambda: fleet.up(UPGRADED) == "1", "up", within=SOON_SECONDS)
    seconds = int(time.time() - begin)
    (series,) = fleet.prometheus.get(
        "query_range",
        query=f'up{{job="rollcall", instance="{UPGRADED}:7656"}}',
        start=str(begin),
        end=str(begin + seconds),
        step="1",
    )["result"]
    assert len(series["values"]) == seconds + 1


def test_a_registry_whose_host_was_killed_comes_back_with_all_it_accepted(fleet: Fleet) -> None:
    fleet.hosts[STOPPED].run(f"systemctl stop {UNIT}")  # it cannot register again meanwhile
    before = fleet.operator.nodes()
    instances = {name: node["kv"]["agent.instance"] for name, node in before.items()}

    fleet.hosts[REGISTRY].power_off()
    until(lambda: fleet.prometheus.discovery_failures() > 0, "a failure", within=SOON_SECONDS)
    targets = fleet.prometheus.hostnames()
    fleet.hosts[REGISTRY].power_on()

    after = until(fleet.operator.nodes, "an answer", within=SOON_SECONDS)
    assert targets == before.keys() == after.keys() == set(AGENTS)
    assert after[STOPPED] == before[STOPPED]
    assert instances == {name: node["kv"]["agent.instance"] for name, node in after.items()}
    fleet.hosts[STOPPED].run(f"systemctl start {UNIT}")
    came_back = int(time.time())
    until(lambda: fleet.heard_since(came_back), "new heartbeats", within=SOON_SECONDS)
    assert fleet.prometheus.hostnames() == set(AGENTS)


def test_a_clone_with_the_state_of_a_host_is_told_and_counted(
    fleet: Fleet,
) -> None:
    original, identity = fleet.hosts[PURGED], fleet.operator.nodes()[PURGED]["kv"]["agent.id"]

    with fleet.machines.clone(PURGED, original) as clone:
        said = until(lambda: refusal(original), "a refusal", within=SOON_SECONDS)
        node = fleet.operator.nodes()[PURGED]
        until(lambda: fleet.prometheus.query(CLONES_REFUSED), "a count", within=SOON_SECONDS)
        addresses = original.address(), clone.address()
    assert "One machine is a copy of the other" in said
    assert [address for address in addresses if address not in said] == []
    assert node["kv"]["agent.id"] == identity

    original.run(f"systemctl restart {UNIT}")
    until(lambda: fleet.accepted(PURGED), "the original is accepted", within=SOON_SECONDS)


def test_a_host_that_stops_is_stale_then_down_and_an_alert_fires(fleet: Fleet) -> None:
    assert HOST_STALE not in fleet.alerts()

    fleet.hosts[STOPPED].power_off()

    until(lambda: fleet.up(STOPPED) == "0", "down", within=SOON_SECONDS)
    until(lambda: STOPPED not in fleet.operator.fresh(STALE_SECONDS), "stale", within=SOON_SECONDS)
    until(lambda: HOST_STALE in fleet.alerts(), "the alert", within=SOON_SECONDS)
    assert STOPPED in fleet.operator.nodes()
    assert fleet.prometheus.hostnames() >= {STOPPED}


def test_a_host_that_is_purged_is_gone_once_it_was_deregistered(fleet: Fleet) -> None:
    host = fleet.hosts[PURGED]

    host.run("rollcall-agent deregister && apt-get purge --yes rollcall")

    assert PURGED not in fleet.operator.nodes()
    until(lambda: fleet.up(PURGED) is None, "no target", within=SOON_SECONDS)
    assert host.try_to("ls -d /etc/rollcall /opt/rollcall /var/lib/rollcall-agent")[0] != 0
