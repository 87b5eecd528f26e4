"""The units under a real systemd: installed, started, killed, misconfigured."""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("make", "debootstrap")
SOON_SECONDS = 30.0
BIN = "/opt/rollcall/venv/bin"
AGENT = 'registries: [{url: "http://127.0.0.1:7655", key_file: node.key}]'
# There is no curl.
NODES = f"""{BIN}/python -c '
from pathlib import Path
from urllib.request import Request, urlopen

key = Path("/etc/rollcall/ops.key").read_text().strip()
request = Request("http://127.0.0.1:7655/nodes", headers={{"Authorization": key}})
print(urlopen(request, timeout=10).read().decode())
'"""


@pytest.fixture(scope="module")
def host(
    docker_client: docker.APIClient, destdir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SystemdHost]:
    """Yield a host on which both daemons are installed and started."""
    need_root()
    edited = tmp_path_factory.mktemp("edited")
    edited.chmod(0o755)  # it becomes the root folder
    text = (destdir / "etc/rollcall/agent.yml").read_text()
    settings = edited / "etc/rollcall/agent.yml"
    settings.parent.mkdir(parents=True)
    settings.write_text(re.sub(r"^registries: .*$", AGENT, text, flags=re.MULTILINE))
    with systemd_image(docker_client) as image, booted_host(docker_client, image) as host:
        host.put(destdir)
        host.put(edited)
        _install(host)
        yield host


def _install(host: SystemdHost) -> None:
    """Do what ``make install`` does on a host after it laid out the files, and start both."""
    host.run("systemd-sysusers /usr/lib/sysusers.d/rollcall.conf && systemctl daemon-reload")
    host.run(
        "cd /etc/rollcall; for name in agent registry; do chgrp rollcall-$name $name.yml; done"
    )
    for key in ("ops.key", "scraper.key", "hosts.key", "node.secret"):
        host.run(f"umask 077; echo {secrets.token_hex(32)} >/etc/rollcall/{key}")
    make_key = f"{BIN}/rollcall-registry --config /etc/rollcall/registry.yml node-key $(hostname)"
    host.run(f"umask 077; {make_key} >/etc/rollcall/node.key")
    host.run("systemctl start rollcall-registry rollcall-agent")


def test_both_daemons_run_confined_and_tell_systemd_that_they_are_ready(host: SystemdHost) -> None:
    for name in ("registry", "agent"):
        unit = f"rollcall-{name}"
        assert host.state(unit) == "active"
        process = f"/proc/{host.pid(unit)}/status"
        assert host.run(f"stat -c %U {process}").strip() == unit
        assert "CapEff:\t0000000000000000\n" in host.run(f"cat {process}")
        assert host.run(f"stat -c %a:%U /var/lib/{unit}").strip() == f"700:{unit}"
    assert "docker" in host.run("id -nG rollcall-agent")
    assert "docker" not in host.run("id -nG rollcall-registry")


def test_the_host_is_taken_with_the_key_that_is_its_own(host: SystemdHost) -> None:
    name = host.run("hostname").strip()
    until(lambda: f'"hostname":"{name}"' in host.run(NODES), "the host's node", within=SOON_SECONDS)


@pytest.mark.parametrize("unit", ["rollcall-registry", "rollcall-agent"])
def test_a_killed_daemon_is_started_again_and_a_reload_keeps_it(
    host: SystemdHost, unit: str
) -> None:
    before = host.pid(unit)
    host.run(f"systemctl kill --signal KILL {unit}")
    until(
        lambda: host.state(unit) == "active" and host.pid(unit) != before, unit, within=SOON_SECONDS
    )
    after = host.pid(unit)
    host.run(f"systemctl reload {unit}")
    assert (host.state(unit), host.pid(unit)) == ("active", after)


def test_wrong_settings_fail_the_unit_once_and_are_in_the_journal(host: SystemdHost) -> None:
    host.run("echo 'nonsense: 1' >>/etc/rollcall/agent.yml")
    status, _ = host.try_to("systemctl restart rollcall-agent")
    assert status != 0
    assert host.state("rollcall-agent") == "failed"
    assert "nonsense: unknown setting" in host.run("journalctl --unit rollcall-agent")
    host.run("sed -i '/^nonsense/d' /etc/rollcall/agent.yml && systemctl start rollcall-agent")
    assert host.state("rollcall-agent") == "active"


def test_root_takes_the_host_out_and_the_agent_goes_on_with_its_state(host: SystemdHost) -> None:
    name = host.run("hostname").strip()
    taken_out = host.run(f"{BIN}/rollcall-agent deregister")
    assert f": {name}: taken out" in taken_out
    assert f'"hostname":"{name}"' not in host.run(NODES)

    host.run("systemctl restart rollcall-agent")

    until(lambda: f'"hostname":"{name}"' in host.run(NODES), "the host's node", within=SOON_SECONDS)
    assert host.run("find /var/lib/rollcall-agent ! -user rollcall-agent") == ""
    host.run(f"{BIN}/rollcall-agent status")


def test_both_end_in_order_when_they_are_stopped(host: SystemdHost) -> None:
    host.run("systemctl stop rollcall-agent rollcall-registry")
    for unit in ("rollcall-agent", "rollcall-registry"):
        assert host.run(f"systemctl show --property Result --value {unit}") == "success\n"
