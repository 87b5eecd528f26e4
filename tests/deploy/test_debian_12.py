"""The package on Debian 12 under systemd: from the installation to the purge, test after test."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from deploy.deb.package import debian_version
from tests.support.e2e.package_host import (
    AGENT,
    REGISTRY,
    SETTINGS,
    STATE,
    PackageHost,
    package_host,
)
from tests.support.e2e.packages import DROPPED, NEXT_DEBIAN_VERSION, NEXT_VERSION, VERSION, Packages
from tests.support.e2e.systemd_host import systemd_image
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.long(3),
    pytest.mark.real("dpkg-deb", "mmdebstrap"),
    pytest.mark.release(
        "test_page.py installs, upgrades and purges the package; these are further cases"
    ),
]
KEYS = ("node.key", "agent-ops.key", "node.secret", "ops.key", "prometheus.key", "scraper.key")
MODULES = "/opt/rollcall/environment/lib/modules/site-packages"
INSTANCE = "rollcall-registry@2"
OTHER_UNIT = "/etc/systemd/system/rollcall-report.service"
APPS = "http://127.0.0.1:7656/v1/apps"


@pytest.fixture(scope="module")
def host(
    docker_client: docker.APIClient,
    engine_url: str,
    packages: Packages,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PackageHost]:
    """Yield a host on which nothing is installed yet."""
    need_root()
    with ExitStack() as stack:
        image = stack.enter_context(systemd_image(docker_client))
        socket = engine_url.removeprefix("unix://")
        # A test gives the socket, which the host shares with this machine, to another group.
        stack.callback(os.chown, socket, -1, Path(socket).stat().st_gid)
        yield stack.enter_context(
            package_host(
                docker_client,
                image,
                packages,
                folder=tmp_path_factory.mktemp("host"),
                engine_socket=socket,
            )
        )


@pytest.fixture(scope="module")
def app(host: PackageHost, docker_client: docker.APIClient, busybox_image: str) -> Iterator[str]:
    """Yield the id of the container of an app on the host."""
    asked = {"name": "untouched", "image": busybox_image, "pull": "never"}
    host.ask("POST", APPS, asked)
    (found,) = docker_client.containers(filters={"ancestor": busybox_image})
    container: str = found["Id"]
    yield container
    docker_client.remove_container(container, force=True, v=True)


def started_at(client: docker.APIClient, container: str) -> str:
    """Return when a container was started; fail unless it runs."""
    state = client.inspect_container(container)["State"]
    assert state["Running"]
    started: str = state["StartedAt"]
    return started


def test_an_installation_makes_users_and_keys_starts_nothing_and_says_what_to_edit(
    host: PackageHost, packages: Packages
) -> None:
    said = host.install(packages.present)

    assert f"edit registries and listen in {SETTINGS}/agent.yml" in said
    assert "systemctl enable --now rollcall-agent" in said
    assert host.states() == ("inactive", "inactive")
    assert host.try_to(f"systemctl is-enabled {AGENT} {REGISTRY}")[1].split() == ["disabled"] * 2
    for key in KEYS:
        assert host.run(f"stat -c '%a %U' {SETTINGS}/{key}") == "600 root\n"
    sizes = [int(host.run(f"stat -c %s {SETTINGS}/{key}")) for key in KEYS]
    assert sizes == [0, 64, 64, 64, 64, 64]
    for name in ("agent", "registry"):
        assert host.run(f"stat -c '%a %G' {SETTINGS}/{name}.yml") == f"640 rollcall-{name}\n"
    assert "docker" in host.run(f"id -nG {AGENT}")
    assert "docker" not in host.run(f"id -nG {REGISTRY}")


def test_both_daemons_run_after_what_the_installation_said(host: PackageHost) -> None:
    host.run("chgrp docker /run/docker.sock")  # the engine's group on a real host

    host.use_both()

    assert host.states() == ("active", "active")
    for program in (AGENT, REGISTRY):
        assert host.run(f"{program} --version") == f"{program} {VERSION}\n"
    for port, daemon in ((7655, "registry"), (7656, "agent")):
        status, page = host.try_to_ask("GET", f"http://127.0.0.1:{port}/")
        assert status == 0, page
        assert f"<title>Rollcall {daemon}</title>" in page
        status, script = host.try_to_ask("GET", f"http://127.0.0.1:{port}/pages/{daemon}/main.js")
        assert status == 0, script


def test_an_upgrade_restarts_the_daemons_and_keeps_settings_state_and_apps(
    host: PackageHost, packages: Packages, app: str, docker_client: docker.APIClient
) -> None:
    host.run(f"sed -i 's/^heartbeat_seconds: .*/heartbeat_seconds: 5/' {SETTINGS}/agent.yml")
    before = host.pids(), host.settings(), started_at(docker_client, app)
    identity = host.identity()

    # Nobody is there to say whether the settings of the next release replace those of the host.
    status, asked = host.try_to(f"dpkg --install /packages/{packages.following.name} </dev/null")
    assert (status, "agent.yml (Y/I/N/O/D/Z)" in asked) == (1, True), asked
    assert (host.pids(), host.settings(), started_at(docker_client, app)) == before
    said = host.run("yes '' | dpkg --configure rollcall")

    assert host.states() == ("active", "active")
    pids, settings, started = before
    assert not set(pids) & set(host.pids())
    assert host.settings() == settings
    assert host.run(f"{AGENT} --version") == f"{AGENT} {NEXT_VERSION}\n"
    assert "nothing was started" not in said
    assert host.try_to(f"ls -d {MODULES}/{DROPPED}")[0] != 0
    host.until_listed()
    assert host.identity() == identity
    assert started_at(docker_client, app) == started
    (record,) = host.ask("GET", APPS)
    assert (record["name"], record["state"]) == ("untouched", "running")


def use_credential(host: PackageHost) -> str:
    """Let the registry have a key that is a credential of its unit alone; return the drop-in."""
    folder, settings = f"/run/systemd/system/{REGISTRY}.service.d", f"{SETTINGS}/registry.yml"
    key = "{name: other, file: other.key, allow: [read]}"
    host.run(f"cp -p {settings} /kept.yml && sed -i 's/^keys: \\[/keys: [{key}, /' {settings}")
    drop_in = "[Service]\\nSetCredential=other.key:0123456789abcdef\\n"
    host.run(f"mkdir {folder} && printf '{drop_in}' >{folder}/key.conf")
    host.run(f"systemctl daemon-reload && systemctl restart {REGISTRY}")
    return folder


def start_other_unit(host: PackageHost) -> None:
    """Start a unit whose name begins like those of the package."""
    text = "[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n"
    host.run(f"printf '{text}' >{OTHER_UNIT} && systemctl enable --now rollcall-report")


def start_instance(host: PackageHost) -> None:
    """Enable and start a second registry on the host."""
    settings = "s/:7655/:7662/; s/registry.db/registry2.db/"
    host.run(
        f"cd {SETTINGS} && cp -p registry.yml registry2.yml && sed -i '{settings}' registry2.yml"
    )
    host.run(f"systemctl enable --now {INSTANCE}")


def test_an_upgrade_restarts_instances_leaves_what_is_stopped_and_finds_keys_that_are_no_files(
    host: PackageHost, packages: Packages
) -> None:
    host.run(f"systemctl stop {AGENT}")
    start_other_unit(host)
    start_instance(host)
    drop_in = use_credential(host)
    registry, other = host.host.pid(REGISTRY), host.host.pid("rollcall-report")
    instance = host.host.pid(INSTANCE)

    host.install(packages.following)

    assert host.states() == ("inactive", "active")
    assert host.host.pid(REGISTRY) != registry
    assert host.host.pid("rollcall-report") == other
    assert host.state(INSTANCE) == "active"
    assert host.host.pid(INSTANCE) != instance
    host.run(f"systemctl disable --now rollcall-report && rm -r {OTHER_UNIT} {drop_in}")
    host.run(f"mv /kept.yml {SETTINGS}/registry.yml && systemctl daemon-reload")
    host.run(f"systemctl restart {REGISTRY} && systemctl start {AGENT}")


def test_another_python_restarts_the_daemons(host: PackageHost) -> None:
    pids = host.pids()

    host.run("dpkg-trigger --by-package=python3-minimal --no-await /usr/bin/python3")
    host.run("dpkg --triggers-only rollcall")

    assert not set(pids) & set(host.pids())
    assert host.states() == ("active", "active")


def test_another_python_restarts_no_daemon_that_could_not_start_again(host: PackageHost) -> None:
    agent, registry = host.pids()
    host.run(f"cp -p {SETTINGS}/agent.yml /kept.yml && echo 'nonsense: 1' >>{SETTINGS}/agent.yml")

    host.run("dpkg-trigger --by-package=python3-minimal --no-await /usr/bin/python3")
    said = host.run("dpkg --triggers-only rollcall")

    assert "agent.yml:" in said
    assert "nonsense: unknown setting" in said
    assert f"{AGENT}.service runs on with the earlier program" in said
    assert host.states() == ("active", "active")
    assert host.host.pid(AGENT) == agent
    assert host.host.pid(REGISTRY) != registry
    host.run(f"mv /kept.yml {SETTINGS}/agent.yml")


def test_a_downgrade_is_rejected_and_changes_nothing(host: PackageHost, packages: Packages) -> None:
    before = host.pids(), host.settings(), host.installed()

    status, said = host.try_to_install(packages.present)

    assert status != 0
    older = debian_version(VERSION)
    assert (
        f"version {NEXT_DEBIAN_VERSION} is installed, and {older} may not read what it stored"
        in said
    )
    assert (host.pids(), host.settings(), host.installed()) == before
    assert host.installed() == f"installed {NEXT_DEBIAN_VERSION}"


def test_a_removal_stops_both_and_keeps_settings_and_state(
    host: PackageHost, app: str, docker_client: docker.APIClient
) -> None:
    settings, started = host.settings(), started_at(docker_client, app)

    host.run("dpkg --remove rollcall")

    assert host.states() == ("inactive", "inactive")
    assert host.state(INSTANCE) == "inactive"
    assert host.try_to("pgrep -f '[/]opt/rollcall'")[0] != 0
    assert host.settings() == settings
    assert host.try_to("ls /opt/rollcall")[0] != 0
    host.run(f"ls {STATE}")
    assert started_at(docker_client, app) == started


def test_an_older_version_that_is_installed_after_a_removal_goes_on(
    host: PackageHost, packages: Packages
) -> None:
    settings = host.settings()

    host.install(packages.present)

    host.until_listed()
    assert host.installed() == f"installed {debian_version(VERSION)}"
    assert host.states() == ("active", "active")
    assert host.state(INSTANCE) == "active"
    assert host.settings() == settings
    assert [record["name"] for record in host.ask("GET", APPS)] == ["untouched"]


def test_a_purge_takes_state_keys_and_settings_away_but_no_app(
    host: PackageHost, app: str, docker_client: docker.APIClient
) -> None:
    started = started_at(docker_client, app)

    said = host.run("dpkg --purge rollcall")

    assert host.run(f"ls {SETTINGS}") == "registry2.yml\n"
    host.run(f"rm -r {SETTINGS}")
    for path in (*STATE.split(), "/opt/rollcall"):
        assert host.try_to(f"ls -d {path}")[0] != 0, path
    assert host.run("find /etc/systemd -name 'rollcall*'") == ""
    assert "docker volume ls --filter label=rollcall.agent" in said
    assert started_at(docker_client, app) == started
