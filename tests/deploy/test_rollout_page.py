"""The page about rolling out to a fleet, from the package to an alert, on hosts with real units."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from tests.support.e2e.fleet.hosts import SshAccess, fleet_hosts, ssh_access
from tests.support.e2e.packages import Packages
from tests.support.e2e.rollout_page import FIRST, REGISTRY, SECOND, rollout_script
from tests.support.e2e.systemd_host import SystemdHost
from tests.support.pages import PROMETHEUS, TOP, Page, run
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.long(2),
    pytest.mark.real(
        "dpkg-deb", "mmdebstrap", "ssh", "openssl", "curl", "unshare", "prometheus", "promtool"
    ),
    pytest.mark.page("docs/rollout.md"),
]
# The package was built for all tests of this folder, and the programs are on the PATH.
MAKE = """
make() {
  [ "$*" = "-C rollcall deb" ]
  mkdir -p rollcall/dist
  cp "$PACKAGE" rollcall/dist
  ln -s "$TOP/deploy" rollcall/deploy
}
"""
# Nobody waits here for the warm-up of a new registry, nor for a minute until a host is stale.
STORE = "store: sqlite:///var/lib/rollcall-registry/registry.db"
NODES = "nodes: {warm_up_seconds: 0, stale_after_seconds: 5}"


@pytest.fixture
def hosts(
    docker_client: docker.APIClient, engine_url: str
) -> Iterator[tuple[dict[str, SystemdHost], SshAccess]]:
    """Yield three hosts on which nothing is installed yet, and how they are reached."""
    need_root()
    socket = engine_url.removeprefix("unix://")
    with ExitStack() as stack:
        machines = stack.enter_context(fleet_hosts(docker_client, engine_socket=socket))
        booted = machines.booted((REGISTRY, FIRST, SECOND), with_engine=())
        started = stack.enter_context(booted)
        access = stack.enter_context(ssh_access(started, machines.addresses))
        yield started, access


def environment(folder: Path, access: SshAccess, package: Path) -> dict[str, str]:
    """Return the environment of the one who sits at the work machine."""
    for program in ("ssh", "scp"):
        (folder / program).write_text(f'#!/bin/sh\nexec /usr/bin/{program} -F {access.config} "$@"')
        (folder / program).chmod(0o755)
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "PACKAGE": str(package), "TOP": str(TOP), "no_proxy": "*"}
    return {**os.environ, **own}


def test_the_page_leads_from_a_package_to_hosts_that_are_scraped_and_alert(
    hosts: tuple[dict[str, SystemdHost], SshAccess],
    packages: Packages,
    tmp_path: Path,
    unused_tcp_port: int,
) -> None:
    machines, access = hosts
    script = rollout_script(Page("docs/rollout.md"), before=PROMETHEUS + MAKE)
    assert STORE in script
    script = script.replace(STORE, f"{STORE}\n{NODES}")
    work, tools = tmp_path / "work", tmp_path / "tools"
    work.mkdir()
    tools.mkdir()
    shell = (*access.with_names(), "bash", "-c")

    run(
        script.replace("127.0.0.1:9090", f"127.0.0.1:{unused_tcp_port}"),
        folder=work,
        environment=environment(tools, access, packages.present),
        shell=shell,
        seconds=600,
    )

    for name in (FIRST, SECOND):
        journal = machines[name].run("journalctl --unit rollcall-agent")
        assert "certificate_rejected" not in journal, journal
        assert "wrong_key" not in journal, journal
    assert machines[FIRST].state("rollcall-agent") == "inactive"
