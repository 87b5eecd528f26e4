"""The page about rolling out to a fleet, on hosts with real units, and a real Prometheus."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from tests.conftest import need_root
from tests.support.e2e.rollout_page import CHECKS, FIRST, REGISTRY, SECOND, script
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image

pytestmark = pytest.mark.real(
    "make", "debootstrap", "docker", "openssl", "curl", "unshare", "prometheus", "promtool"
)
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
WITH_NAMES = 'mount --bind "$HOSTS_FILE" /etc/hosts && exec bash -c "$SCRIPT"'
SCRAPED = f"""
prometheus --config.file=prometheus/prometheus.yml --storage.tsdb.path=data \
  --web.listen-address=127.0.0.1:$PROMETHEUS > prometheus.log 2>&1 &
trap "kill $!" EXIT
up() {{
  curl --silent --get --data-urlencode 'query=up{{instance="'"$1:7656"'"}} == 1' \
    "http://127.0.0.1:$PROMETHEUS/api/v1/query" | grep -q '"value"'
}}
until_up() {{ for _ in $(seq 1200); do if up "$1"; then return; fi; sleep 0.1; done; return 1; }}
until_up {FIRST}; until_up {SECOND}
"""


@pytest.fixture
def hosts(
    docker_client: docker.APIClient, destdir: Path
) -> Iterator[tuple[str, dict[str, SystemdHost]]]:
    """Give three hosts after ``make install``, and what their containers' names begin with."""
    need_root()
    prefix, started = f"rollcall-test-{secrets.token_hex(4)}-", {}
    with ExitStack() as stack:
        image = stack.enter_context(systemd_image(docker_client))
        known: dict[str, str] = {}
        for name in (REGISTRY, FIRST, SECOND):
            host = booted_host(docker_client, image, name=prefix + name, hosts=known)
            started[name] = stack.enter_context(host)
            known[name] = started[name].address()
            _install(started[name], destdir)
        yield prefix, started


def _install(host: SystemdHost, destdir: Path) -> None:
    host.put(destdir)
    host.run("systemd-sysusers /usr/lib/sysusers.d/rollcall.conf && systemctl daemon-reload")
    for key in ("ops.key", "scraper.key", "hosts.key", "node.secret"):
        host.run(f"umask 077; echo {secrets.token_hex(32)} >/etc/rollcall/{key}")
    host.run("umask 077; : >/etc/rollcall/node.key")


def environment(
    folder: Path, prefix: str, hosts: Mapping[str, SystemdHost], more: Mapping[str, str]
) -> dict[str, str]:
    """Give the environment of the one who sits at the work machine."""
    for name, text in (("ssh", SSH), ("scp", SCP)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    names = folder / "hosts"
    names.write_text("".join(f"{host.address()} {name}\n" for name, host in hosts.items()))
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "PREFIX": prefix, "HOSTS_FILE": str(names), "no_proxy": "*"}
    return {**os.environ, **own, **more}


def test_the_page_holds_on_hosts_with_the_units_and_prometheus_reads_them(
    hosts: tuple[str, dict[str, SystemdHost]], tmp_path: Path, unused_tcp_port: int
) -> None:
    prefix, machines = hosts
    checks = {**CHECKS, "5.": CHECKS["5."] + SCRAPED}
    more = {"SCRIPT": script(replaced={}, checks=checks), "PROMETHEUS": str(unused_tcp_port)}
    work, tools = tmp_path / "work", tmp_path / "tools"
    work.mkdir()
    tools.mkdir()

    with (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", WITH_NAMES],
            cwd=work,
            env=environment(tools, prefix, machines, more),
            stdout=output,
            stderr=output,
            timeout=300,
            check=False,
        )

    assert done.returncode == 0, (tmp_path / "output").read_text()
    for name in (FIRST, SECOND):
        journal = machines[name].run("journalctl --unit rollcall-agent")
        assert "certificate_refused" not in journal, journal
        assert "wrong_key" not in journal, journal
    assert machines[FIRST].state("rollcall-agent") == "inactive"
