"""A fleet from its installation on, test after test: a registry's host, three hosts and Prometheus.

Each host is a container with systemd, in a network that the test makes. The agents share the engine
of this machine, as several agents may: each knows its own apps by its identity. An engine in each
container would need more of the kernel than a container has here, and room for images of its own.
It is here because it installs the packages that the tests of this folder build once.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.daemons import FreePort
from tests.support.e2e.fleet.alerts import (
    HOST_STALE,
    fleet_settings,
    rules_without_wait,
)
from tests.support.e2e.fleet.ansible import Ansible
from tests.support.e2e.fleet.fleet import Fleet
from tests.support.e2e.fleet.hosts import (
    fleet_hosts,
    share_engine_socket,
    ssh_access,
)
from tests.support.e2e.fleet.operator import Operator
from tests.support.e2e.packages import NEXT_DEBIAN_VERSION, NEXT_VERSION, VERSION, Packages
from tests.support.e2e.rollout_page import REGISTRY
from tests.support.e2e.systemd_host import SystemdHost
from tests.support.prometheus import running_prometheus
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.long(7),
    pytest.mark.real("dpkg-deb", "mmdebstrap", "ssh", "curl", "openssl", "unshare", "prometheus"),
    pytest.mark.release("a fleet of systemd hosts, for several minutes"),
]
AGENTS = UPGRADED, STOPPED, PURGED = tuple(f"web-{number}.example.com" for number in (1, 2, 3))
UNIT = "rollcall-agent"
INSTALLED = "/etc/rollcall /opt/rollcall /var/cache/rollcall.deb /var/lib/rollcall-*"
STALE_SECONDS = 20
SOON_SECONDS = 90.0
CLONES_REJECTED = 'rollcall_registry_heartbeats_rejected_total{reason="clone"} > 0'
# The next release rejects heartbeats that come more often than every five seconds.
ACCEPTED = {name: {"heartbeat_seconds": 5} for name in AGENTS}
ONE_REJECTED = {**ACCEPTED, UPGRADED: {"heartbeat_seconds": 1}}
SECRET, NEW_SECRET = (
    {"file": f"/etc/rollcall/{name}"} for name in ("node-secret", "node-secret-2")
)
# Certificates last 90 days.
RENEW = {"rollcall_renew_days": 91, "rollcall_node_secrets": [NEW_SECRET, SECRET]}
REGISTRY_SETTINGS = {"nodes": {"warm_up_seconds": 0, "stale_after_seconds": STALE_SECONDS}}
ALL_AT_ONCE, TWO_AT_ONCE = (
    ("--extra-vars", f"rollcall_at_once={count}") for count in (len(AGENTS), 2)
)


@pytest.fixture(scope="module")
def fleet(
    docker_client: docker.APIClient,
    engine_url: str,
    packages: Packages,
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
) -> Iterator[Fleet]:
    """Yield a fleet in which every daemon runs."""
    need_root()
    socket = engine_url.removeprefix("unix://")
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        stack.callback(os.chown, socket, -1, Path(socket).stat().st_gid)
        machines = stack.enter_context(fleet_hosts(docker_client, engine_socket=socket))
        hosts = stack.enter_context(machines.booted((REGISTRY, *AGENTS), with_engine=AGENTS))
        share_engine_socket(socket, [hosts[name] for name in AGENTS])
        access = stack.enter_context(ssh_access(hosts, machines.addresses))
        ansible = Ansible(folder, access, REGISTRY_SETTINGS)
        checked = ansible.play(packages.present, ONE_REJECTED, *ALL_AT_ONCE, "--check")
        left = [host.try_to(f"ls -d {INSTALLED} 2>/dev/null")[1] for host in hosts.values()]
        left += [each.name for each in ansible.work.glob("*")]
        first = ansible.play(packages.present, ONE_REJECTED, *ALL_AT_ONCE, "-v", "--diff")
        assert first.status == 0, first.output
        prometheus = running_prometheus(
            fleet_settings(ansible.work, rules_without_wait(HOST_STALE, folder)),
            folder=folder / "prometheus",
            port=free_port(),
            within=access.with_names(),
        )
        yield Fleet(
            machines,
            hosts,
            Operator(ansible.work, machines.addresses),
            stack.enter_context(prometheus),
            ansible,
            checked,
            list(filter(None, left)),
            first,
        )


def rejection(host: SystemdHost) -> str:
    """Return what a host's status says of a rejected clone, "" if it says nothing of one."""
    said = host.try_to("rollcall-agent status")[1]
    return said if "clone_rejected" in said else ""


def holder(fleet: Fleet, name: str) -> str:
    """Return the instance of an agent whose heartbeats the registry accepts under a name."""
    held: str = fleet.operator.nodes()[name]["kv"]["agent.instance"]
    return held


def instance(host: SystemdHost) -> str:
    """Return the instance of the agent that runs on a host, as its own status has it."""
    said = json.loads(host.try_to("rollcall-agent status --json 2>/dev/null")[1])
    own: str = said["heartbeat"]["kv"]["agent.instance"]
    return own


@pytest.fixture(scope="module")
def app(fleet: Fleet, docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield the id of the container of an app on the host that is upgraded."""
    name = f"fleet-{secrets.token_hex(4)}"
    fleet.operator.create_app(UPGRADED, {"name": name, "image": busybox_image, "pull": "never"})
    (found,) = docker_client.containers(filters={"name": name})
    container: str = found["Id"]
    yield container
    docker_client.remove_container(container, force=True, v=True)


def test_a_check_of_bare_hosts_passes_and_changes_nothing(fleet: Fleet) -> None:
    assert fleet.checked.status == 0, fleet.checked.output
    assert fleet.checked.changed().keys() >= fleet.hosts.keys()
    assert fleet.left_by_check == []


def test_a_check_of_a_fleet_that_is_installed_passes_and_finds_no_change(
    fleet: Fleet, packages: Packages
) -> None:
    check = fleet.ansible.play(packages.present, ONE_REJECTED, *ALL_AT_ONCE, "--check")

    assert check.status == 0, check.output
    assert check.changed() == dict.fromkeys((REGISTRY, *AGENTS), 0)


def test_all_hosts_register_and_are_up_in_prometheus(fleet: Fleet) -> None:
    until(lambda: fleet.operator.fresh(STALE_SECONDS) == set(AGENTS), "nodes", within=SOON_SECONDS)

    until(lambda: {fleet.up(host) for host in AGENTS} == {"1"}, "targets", within=SOON_SECONDS)

    assert all(fleet.accepted(host) for host in AGENTS)
    assert fleet.alerts() == []


def test_a_second_run_of_the_playbook_changes_nothing_but_what_was_cut_off_and_shows_no_secret(
    fleet: Fleet, packages: Packages
) -> None:
    pids = {name: fleet.hosts[name].pid(UNIT) for name in AGENTS}
    # As if the first run had ended right after it copied the settings.
    fleet.hosts[STOPPED].run("touch /etc/rollcall/agent.yml")
    # And as if the script of the package had failed, which is what its version does not show.
    fleet.hosts[PURGED].run("dpkg --force-confold --unpack /var/cache/rollcall.deb")
    assert fleet.package_status(PURGED) == "unpacked"

    second = fleet.ansible.play(packages.present, ONE_REJECTED, *ALL_AT_ONCE, "-v", "--diff")

    assert second.status == 0, second.output
    cut_off = (STOPPED, PURGED)
    unchanged = dict.fromkeys((REGISTRY, *AGENTS), 0)
    assert second.changed() == {**unchanged, **dict.fromkeys(cut_off, 1)}
    assert {name for name in AGENTS if fleet.hosts[name].pid(UNIT) != pids[name]} == set(cut_off)
    assert fleet.package_status(PURGED) == "installed"
    assert all(fleet.first.changed().values())
    node_keys = [fleet.hosts[name].run("cat /etc/rollcall/host.key").strip() for name in AGENTS]
    secrets_made = [*fleet.ansible.secrets(), *node_keys]
    assert len(set(secrets_made)) > 2 * len(AGENTS)
    for output in (fleet.first.output, second.output):
        assert [secret for secret in secrets_made if secret in output] == []


def test_keys_can_be_read_by_their_daemon_and_root_alone(fleet: Fleet) -> None:
    for name, keys, user in (
        (REGISTRY, ("ops", "scraper", "node-secret", "tls.key"), "rollcall-registry"),
        (PURGED, ("ops", "agents.key", "host.key", "tls.key"), "rollcall-agent"),
    ):
        said = fleet.hosts[name].run(f"cd /etc/rollcall && stat -c '%a %U' {' '.join(keys)}")
        assert said.splitlines() == [f"600 {user}"] * len(keys)
    assert fleet.ansible.work.stat().st_mode & 0o777 == 0o700


def test_a_host_that_cannot_be_upgraded_keeps_those_of_the_next_turn_from_it(
    fleet: Fleet, packages: Packages
) -> None:
    certificate, begin = fleet.operator.certificate(REGISTRY), int(time.time())

    play = fleet.ansible.play(packages.following, ONE_REJECTED, *TWO_AT_ONCE, variables=RENEW)

    assert play.status != 0
    assert (play.failed(), play.batches()) == ({UPGRADED}, 1)
    assert f"agent.yml is rejected by version {NEXT_DEBIAN_VERSION}" in play.output
    assert fleet.hosts[REGISTRY].run("rollcall-registry --version").split()[1] == NEXT_VERSION
    until(lambda: fleet.heard_since(begin), "new heartbeats", within=SOON_SECONDS)
    assert fleet.versions() == {UPGRADED: VERSION, STOPPED: NEXT_VERSION, PURGED: VERSION}
    # The registry has accepted what was made with the old secret, too.
    assert all(fleet.accepted(host) for host in AGENTS)
    assert fleet.operator.certificate(REGISTRY) != certificate


def test_an_upgrade_goes_host_by_host_restarts_no_app_and_loses_no_target(
    fleet: Fleet, packages: Packages, app: str, docker_client: docker.APIClient
) -> None:
    host, node = fleet.hosts[UPGRADED], fleet.operator.nodes()[UPGRADED]
    pid, started = host.pid(UNIT), docker_client.inspect_container(app)["State"]["StartedAt"]
    shown, kept_pid = {name: fleet.shown(name) for name in AGENTS}, fleet.hosts[STOPPED].pid(UNIT)
    begin = time.time()

    # The registry was upgraded before the host that could not be.
    play = fleet.ansible.play(
        packages.following, ACCEPTED, f"--limit={UPGRADED},{STOPPED}", variables=RENEW
    )

    assert play.status == 0, play.output
    assert play.batches() == 2
    # The playbook has waited for each.
    assert fleet.versions() == {**dict.fromkeys(AGENTS, NEXT_VERSION), PURGED: VERSION}
    assert host.pid(UNIT) != pid
    # One was upgraded by the play before: this one has brought it its key and certificate alone.
    assert fleet.hosts[STOPPED].pid(UNIT) == kept_pid
    new = (UPGRADED, STOPPED)
    until(lambda: fleet.show_new_certificates(*new), "certificates", within=SOON_SECONDS)
    for name in new:
        key, certificate = fleet.shown(name)
        assert (key == shown[name][0], certificate == shown[name][1]) == (False, False)
    state = docker_client.inspect_container(app)["State"]
    assert (state["Running"], state["StartedAt"]) == (True, started)
    assert fleet.operator.nodes()[UPGRADED]["kv"]["agent.id"] == node["kv"]["agent.id"]
    until(lambda: fleet.heard_since(int(begin)), "new heartbeats", within=SOON_SECONDS)
    assert all(fleet.accepted(host) for host in AGENTS)
    until(lambda: fleet.up(UPGRADED) == "1", "up", within=SOON_SECONDS)
    seconds = int(time.time() - begin)
    series = fleet.prometheus.get(
        "query_range",
        query='up{job="rollcall"}',
        start=str(begin),
        end=str(begin + seconds),
        step="1",
    )["result"]
    assert [len(each["values"]) for each in series] == [seconds + 1] * len(AGENTS)


def test_a_key_of_a_secret_that_is_no_longer_named_is_rejected_and_the_registry_gets_an_agent(
    fleet: Fleet, packages: Packages
) -> None:
    old_key, begin = fleet.shown(PURGED)[0], int(time.time())
    pids = {name: fleet.hosts[name].pid(UNIT) for name in (UPGRADED, STOPPED)}
    assert fleet.operator.report(PURGED, old_key) == HTTPStatus.OK

    # The one was left out before, and the other was no agent's machine.
    play = fleet.ansible.play(
        packages.following,
        {**ACCEPTED, REGISTRY: {"heartbeat_seconds": 5}},
        f"--limit={REGISTRY},{PURGED}",
        variables={"rollcall_node_secrets": [NEW_SECRET]},
    )

    assert play.status == 0, play.output
    assert fleet.operator.report(PURGED, old_key) == HTTPStatus.UNAUTHORIZED
    assert fleet.accepted(REGISTRY)
    assert fleet.operator.nodes().keys() == {REGISTRY, *AGENTS}
    fleet.hosts[REGISTRY].run(f"{UNIT} deregister && systemctl disable --now {UNIT}")
    until(lambda: fleet.heard_since(begin), "new heartbeats", within=SOON_SECONDS)
    assert all(fleet.accepted(host) for host in AGENTS)
    assert {name: fleet.hosts[name].pid(UNIT) for name in pids} == pids
    found = fleet.hosts[REGISTRY].run("cd /etc/rollcall && ls node-secret*")
    assert found == "node-secret-2\n"


def test_a_registry_whose_host_was_killed_comes_back_with_all_it_accepted(fleet: Fleet) -> None:
    fleet.hosts[STOPPED].run(f"systemctl stop {UNIT}")  # it cannot register again meanwhile
    before = fleet.operator.nodes()
    instances = {name: node["kv"]["agent.instance"] for name, node in before.items()}
    # Of an unchanged heartbeat, `last_update` alone is kept, and that within a second.
    kept = before[STOPPED]["last_update"] + 2
    until(lambda: time.time() > kept, "the last heartbeat kept", within=SOON_SECONDS)

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


def test_a_clone_with_the_state_of_a_host_is_reported_and_counted(
    fleet: Fleet,
) -> None:
    original, before = fleet.hosts[PURGED], holder(fleet, PURGED)
    assert before == instance(original)

    with fleet.machines.clone(PURGED, original) as clone:
        said = until(lambda: rejection(original), "a rejection", within=SOON_SECONDS)
        held, copied = holder(fleet, PURGED), instance(clone)
        until(lambda: fleet.prometheus.query(CLONES_REJECTED), "a count", within=SOON_SECONDS)
        addresses = original.address(), clone.address()
    assert "One machine is a copy of the other" in said
    assert [address for address in addresses if address not in said] == []
    # The copy is the one that is accepted.
    assert held == copied != before == instance(original)

    original.run(f"systemctl restart {UNIT}")
    until(lambda: fleet.accepted(PURGED), "the original is accepted", within=SOON_SECONDS)
    assert holder(fleet, PURGED) == instance(original) not in {before, copied}


def test_a_host_that_stops_is_stale_then_down_and_an_alert_fires_and_no_turn_follows_it(
    fleet: Fleet, packages: Packages
) -> None:
    assert HOST_STALE not in fleet.alerts()

    fleet.hosts[STOPPED].power_off()
    play = fleet.ansible.play(
        packages.following, ACCEPTED, f"--limit={','.join(AGENTS)}", *TWO_AT_ONCE
    )

    assert play.status != 0
    assert (play.failed(), play.batches()) == ({STOPPED}, 1)
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
