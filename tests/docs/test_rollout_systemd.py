"""The page about rolling out to a fleet, on hosts with real units, and a real Prometheus."""

import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from tests.support.e2e.rollout_page import CHECKS, FIRST, REGISTRY, SECOND, rollout_script
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image
from tests.support.pages import PROMETHEUS, Page, run
from tests.support.requirements import need_root

pytestmark = [
    pytest.mark.real(
        "make", "debootstrap", "docker", "openssl", "curl", "unshare", "prometheus", "promtool"
    ),
    pytest.mark.page("docs/rollout.md"),
]
# They reach a host by its container, whose name begins with what is in $PREFIX.
SSH = """\
#!/bin/bash
name="${1#root@}"; shift
exec docker exec "$PREFIX$name" sh -c "$*"
"""
SCP = """\
#!/bin/bash
set -eu
[ "$1" = -r ] && [ $# = 3 ]
target="${3#root@}"
exec docker cp "$2" "$PREFIX$target"
"""
# The page's names are known to what runs below this alone.
SHELL = (
    *("unshare", "--mount", "sh", "-c"),
    'mount --bind "$HOSTS_FILE" /etc/hosts && exec bash -c "$0"',
)
STORE = "store: sqlite:///var/lib/rollcall-registry/registry.db"
SCRAPED_AFTER = "5. Look at the result"
SCRAPED = f"""
prometheus --config.file=prometheus/prometheus.yml
until_query 'up{{instance="{FIRST}:7656"}} == 1'
until_query 'up{{instance="{SECOND}:7656"}} == 1'
"""


@pytest.fixture
def hosts(
    docker_client: docker.APIClient, destdir: Path
) -> Iterator[tuple[str, dict[str, SystemdHost]]]:
    """Return three hosts after ``make install``, and how their containers' names begin."""
    need_root()
    prefix, started = f"rollcall-test-{secrets.token_hex(4)}-", {}
    with ExitStack() as stack:
        image = stack.enter_context(systemd_image(docker_client))
        known: dict[str, str] = {}
        for name in (REGISTRY, FIRST, SECOND):
            host = booted_host(docker_client, image, name=prefix + name, hosts=known)
            started[name] = stack.enter_context(host)
            known[name] = started[name].address()
            started[name].install(destdir)
        yield prefix, started


def environment(folder: Path, prefix: str, hosts: Mapping[str, SystemdHost]) -> dict[str, str]:
    """Return the environment of the one who sits at the work machine."""
    for name, text in (("ssh", SSH), ("scp", SCP)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    names = folder / "hosts"
    names.write_text("".join(f"{host.address()} {name}\n" for name, host in hosts.items()))
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "PREFIX": prefix, "HOSTS_FILE": str(names), "no_proxy": "*"}
    return {**os.environ, **own}


def test_the_page_holds_on_hosts_with_the_units_and_prometheus_reads_them(
    page: Page,
    hosts: tuple[str, dict[str, SystemdHost]],
    tmp_path: Path,
    unused_tcp_port: int,
) -> None:
    prefix, machines = hosts
    before, after = CHECKS[SCRAPED_AFTER]
    checks = {**CHECKS, SCRAPED_AFTER: [before, f"{after}\n{SCRAPED}"]}
    script = rollout_script(page, checks=checks, before=PROMETHEUS)
    # The registry is new; nobody waits for its warm-up here.
    assert STORE in script
    script = script.replace(STORE, f"{STORE}\nnodes: {{warm_up_seconds: 0}}")
    work, tools = tmp_path / "work", tmp_path / "tools"
    work.mkdir()
    tools.mkdir()

    run(
        script.replace("127.0.0.1:9090", f"127.0.0.1:{unused_tcp_port}"),
        folder=work,
        environment=environment(tools, prefix, machines),
        shell=SHELL,
        seconds=300,
    )

    for name in (FIRST, SECOND):
        journal = machines[name].run("journalctl --unit rollcall-agent")
        assert "certificate_refused" not in journal, journal
        assert "wrong_key" not in journal, journal
    assert machines[FIRST].state("rollcall-agent") == "inactive"
