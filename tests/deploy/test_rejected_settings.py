"""Settings that a version rejects, on a host with the package and on one with `make install`."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from deploy.deb.package import debian_version
from tests.support.e2e.make_install import make_install
from tests.support.e2e.package_host import (
    AGENT,
    REGISTRY,
    SETTINGS,
    STATE,
    PackageHost,
    package_host,
)
from tests.support.e2e.packages import NEXT_DEBIAN_VERSION, NEXT_VERSION, VERSION, Packages
from tests.support.e2e.systemd_host import systemd_image
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.long(3),
    pytest.mark.real("make", "dpkg-deb", "mmdebstrap"),
    pytest.mark.release("further upgrades of a systemd host"),
]
UNITS = "/etc/systemd/system"
CALLBACK_KEY = f"{SETTINGS}/callback.key"
INSTANCE = "rollcall-registry@2"
WANTED = f"{UNITS}/multi-user.target.wants"
MEND = f"sed -i 's/^heartbeat_seconds: .*/heartbeat_seconds: 5/' {SETTINGS}/agent.yml"
FILES = (
    "find /opt/rollcall/environment -type f ! -name '*.pyc' | sort | xargs sha256sum | sha256sum"
)


@pytest.fixture(scope="module")
def hosts(
    docker_client: docker.APIClient,
    engine_url: str,
    packages: Packages,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[PackageHost]]:
    """Yield two hosts on which nothing is installed yet."""
    need_root()
    with ExitStack() as stack:
        image = stack.enter_context(systemd_image(docker_client))
        yield [
            stack.enter_context(
                package_host(
                    docker_client,
                    image,
                    packages,
                    folder=tmp_path_factory.mktemp("host"),
                    engine_socket=engine_url.removeprefix("unix://"),
                )
            )
            for _ in range(2)
        ]


@pytest.fixture(scope="module")
def upgraded(hosts: list[PackageHost], packages: Packages) -> PackageHost:
    """Return a host that runs both daemons from the package, by settings the next one rejects."""
    hosts[0].install(packages.present)
    hosts[0].use_both()
    # Settings of an instance that this version rejects, too.
    hosts[0].run(f"echo 'nonsense: 1' >{SETTINGS}/registry2.yml && systemctl enable {INSTANCE}")
    # A file that root can read, and the daemon cannot.
    hosts[0].run(f"umask 077; echo {secrets.token_hex(32)} >{CALLBACK_KEY}")
    callback = f"[{{url: 'http://127.0.0.1:9/', key_file: {CALLBACK_KEY}}}]"
    hosts[0].run(f'sed -i "s|^callbacks: .*|callbacks: {callback}|" {SETTINGS}/registry.yml')
    return hosts[0]


@pytest.fixture(scope="module")
def taken_over(hosts: list[PackageHost], destdir: Path) -> PackageHost:
    """Return a host that runs both daemons from ``make install``, by such settings."""
    host = hosts[1]
    make_install(host.host, destdir)
    host.run(f"sed -i 's/^MemoryMax=.*/MemoryMax=700M/' {UNITS}/{AGENT}.service")
    host.run(f"mkdir {UNITS}/{AGENT}.service.d")
    host.run(f"printf '[Service]\\nTasksMax=99\\n' >{UNITS}/{AGENT}.service.d/mine.conf")
    host.run("ln -s /opt/rollcall/venv/bin/rollcall-* /usr/local/bin; systemctl daemon-reload")
    host.use_both()
    host.run("rm /usr/local/bin/rollcall-*")
    return host


def test_an_upgrade_that_rejects_the_settings_leaves_the_version_before_as_it_is(
    upgraded: PackageHost, packages: Packages
) -> None:
    before = upgraded.pids(), upgraded.settings(), upgraded.run(FILES)

    status, said = upgraded.try_to_install(packages.following)

    assert status != 0
    assert "heartbeat_seconds: " in said
    assert f"{CALLBACK_KEY} cannot be read: Permission denied" in said
    for rejected in ("agent.yml", "registry.yml", "registry2.yml"):
        assert (
            said.count(f"{SETTINGS}/{rejected} is rejected by version {NEXT_DEBIAN_VERSION}") == 1
        )
    rejected = (
        f"the upgrade to {NEXT_DEBIAN_VERSION} is rejected, and version {debian_version(VERSION)}"
    )
    assert said.count(rejected) == 1
    assert (upgraded.pids(), upgraded.settings(), upgraded.run(FILES)) == before
    assert upgraded.installed() == f"installed {debian_version(VERSION)}"
    assert upgraded.damage() == ""
    upgraded.run(f"chgrp {REGISTRY} {CALLBACK_KEY} && chmod 640 {CALLBACK_KEY}")
    upgraded.run(f"systemctl restart {AGENT} {REGISTRY}")
    assert upgraded.states() == ("active", "active")


def test_the_upgrade_succeeds_once_the_daemon_of_the_settings_is_not_used(
    upgraded: PackageHost, packages: Packages
) -> None:
    upgraded.run(f"systemctl disable {INSTANCE} && systemctl disable --now {AGENT}")

    upgraded.install(packages.following)

    assert upgraded.installed() == f"installed {NEXT_DEBIAN_VERSION}"
    assert upgraded.states() == ("inactive", "active")
    upgraded.run(MEND)
    upgraded.run(f"systemctl enable --now {AGENT}")
    upgraded.until_listed()


def test_make_install_rejects_a_host_that_has_the_package(upgraded: PackageHost) -> None:
    status, said = try_make_install(upgraded)

    assert status == 1
    assert said == (
        "rollcall: this host has the package rollcall (installed): "
        "install its new version instead\n"
    )


def test_make_install_rejects_a_host_that_has_the_settings_of_a_removed_package(
    upgraded: PackageHost,
) -> None:
    upgraded.run("dpkg --remove rollcall")

    status, said = try_make_install(upgraded)

    assert upgraded.installed().startswith("config-files ")
    assert status == 1
    assert said == (
        "rollcall: this host has what the removed package rollcall left: "
        "install the package again,\n"
        "rollcall: or remove the rest, with all settings, keys and state: apt-get purge rollcall\n"
    )


def test_a_purge_keeps_state_and_keys_of_a_make_install_after_the_removal(
    upgraded: PackageHost,
) -> None:
    upgraded.run("mkdir -p /opt/rollcall/venv")  # what an earlier version's `make install` did

    said = upgraded.run("dpkg --purge rollcall")

    assert "'make install' installed the daemons on this host" in said
    upgraded.run(
        f"ls {SETTINGS}/ops.key {SETTINGS}/node.secret {STATE} {WANTED}/{REGISTRY}.service"
    )


def try_make_install(host: PackageHost) -> tuple[int, str]:
    """Run ``make install`` on a host, and return the exit status and what was said."""
    script = (Path(__file__).parents[2] / "systemd" / "install.sh").read_text()
    folder = secrets.token_hex(4)
    host.run(f"mkdir /{folder}; cat >/{folder}/install.sh <<'END'\n{script}END")
    return host.try_to(f"cd /{folder} && sh install.sh")


def test_a_package_that_rejects_the_settings_leaves_make_install_as_it_is(
    taken_over: PackageHost, packages: Packages
) -> None:
    before = taken_over.pids(), taken_over.settings()

    status, said = taken_over.try_to_install(packages.following)

    assert status != 0
    assert f"{SETTINGS}/agent.yml is rejected by version {NEXT_DEBIAN_VERSION}" in said
    assert "the daemons that 'make install' installed run on" in said
    assert (taken_over.pids(), taken_over.settings()) == before
    version = taken_over.run("/opt/rollcall/venv/bin/rollcall-agent --version")
    assert version == f"rollcall-agent {VERSION}\n"


def test_a_removal_and_a_later_purge_leave_make_install_as_it_is(taken_over: PackageHost) -> None:
    before = taken_over.pids(), taken_over.settings()

    taken_over.run("rm -r /opt/rollcall/environment")  # a damaged package can be removed, too
    taken_over.run("dpkg --remove rollcall")
    assert taken_over.installed() == f"config-files {NEXT_DEBIAN_VERSION}"
    said = taken_over.run("dpkg --purge rollcall")

    assert "'make install' installed the daemons on this host" in said
    assert_untouched(taken_over, before)
    taken_over.run(f"systemctl restart {AGENT} {REGISTRY}")
    assert taken_over.states() == ("active", "active")


# After the purge, dpkg knows as little of the package as before.
@pytest.mark.parametrize("action", ["purge", "remove"])
def test_a_package_that_was_never_configured_leaves_make_install_as_it_is(
    taken_over: PackageHost, packages: Packages, action: str
) -> None:
    before = taken_over.pids(), taken_over.settings()
    taken_over.run(f"dpkg --unpack /packages/{packages.following.name}")
    assert taken_over.try_to(f"ls {SETTINGS}/agent.yml")[0] != 0

    taken_over.run(f"dpkg --{action} rollcall")

    taken_over.run(f"rm -f {SETTINGS}/*.yml.dpkg-new")
    assert_untouched(taken_over, before)


def test_settings_that_are_changed_after_a_removal_are_taken_over(
    taken_over: PackageHost, packages: Packages
) -> None:
    taken_over.run(f"echo '# changed' >>{SETTINGS}/agent.yml")

    assert taken_over.try_to_install(packages.following)[0] != 0

    assert taken_over.run(f"tail -n 1 {SETTINGS}/agent.yml") == "# changed\n"
    assert taken_over.try_to(f"ls {SETTINGS}/*.kept")[0] != 0
    taken_over.run(f"systemctl restart {AGENT} {REGISTRY}")
    assert taken_over.states() == ("active", "active")


def assert_untouched(host: PackageHost, before: tuple[tuple[int, int], str]) -> None:
    """Fail unless both daemons of ``make install`` run on, by the settings they had."""
    settings = host.settings()
    kept = [each for each in settings.splitlines() if ".yml.kept" not in each]
    assert (host.pids(), kept) == (before[0], before[1].splitlines())
    host.run(f"ls {STATE}")
    enabled = host.run(f"systemctl is-enabled {AGENT} {REGISTRY}")
    assert enabled.split() == ["enabled"] * 2


def test_a_package_takes_over_what_make_install_installed(taken_over: PackageHost) -> None:
    taken_over.run(MEND)
    pids, settings, identity = taken_over.pids(), taken_over.settings(), taken_over.identity()
    taken_over.run(f"systemctl disable {REGISTRY}")

    said = taken_over.run("dpkg --configure rollcall")

    assert "nothing was started" not in said
    assert taken_over.states() == ("active", "active")
    assert not set(pids) & set(taken_over.pids())
    assert taken_over.settings() == settings
    taken_over.until_listed()
    assert taken_over.identity() == identity
    assert taken_over.run(f"{AGENT} --version") == f"{AGENT} {NEXT_VERSION}\n"
    enabled = taken_over.try_to(f"systemctl is-enabled {AGENT} {REGISTRY}")[1]
    assert enabled.split() == ["enabled", "disabled"]
    for property_, value in (
        ("FragmentPath", f"/lib/systemd/system/{AGENT}.service"),
        ("MemoryMax", str(512 * 1024 * 1024)),
        ("TasksMax", "99"),  # a drop-in is the operator's
    ):
        shown = taken_over.run(f"systemctl show --property {property_} --value {AGENT}")
        assert shown.strip().removeprefix("/usr") == value
    assert "MemoryMax=700M" in taken_over.run(f"cat {UNITS}/{AGENT}.service.replaced")
    assert taken_over.run("readlink /opt/rollcall/venv") == "environment\n"
    assert taken_over.damage() == ""
