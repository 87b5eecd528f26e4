"""The units under a real systemd: installed, started, killed, misconfigured."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.e2e import heartbeat_load
from tests.support.e2e.make_install import MAKE_INSTALL, make_install
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image
from tests.support.pages import FENCED, Page
from tests.support.requirements import need_root
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("make", "mmdebstrap")
SOON_SECONDS = 30.0
BIN = "/opt/rollcall/venv/bin"
UNITS = ("rollcall-registry", "rollcall-agent")
AGENT = 'registries: [{url: "http://127.0.0.1:7655", key_file: node.key}]'
# There is no curl.
NODES = f"""{BIN}/python -c '
from pathlib import Path
from urllib.request import Request, urlopen

key = Path("/etc/rollcall/ops.key").read_text().strip()
request = Request("http://127.0.0.1:7655/nodes", headers={{"Authorization": key}})
print(urlopen(request, timeout=60).read().decode())
'"""
ACCESS = NODES.replace(":7655/nodes", ":7656/access").replace("ops.key", "agent-ops.key")
# The program is there at each moment of an installation: one that ends after any move leaves it.
CUT = '#!/bin/sh\\n/bin/mv "$@"\\nkill -9 $PPID\\n'
SAVE = "cp -a /etc/rollcall /installed"
UNCHANGED = (
    "diff -r /installed /etc/rollcall && ! ls -d /run/systemd/system/rollcall-* "
    f"&& systemctl is-active {UNITS[0]} && systemctl is-active {UNITS[1]}"
)
# A pattern need not match any unit.
RESTORE = f"""systemctl stop 'rollcall-*' 'load*'
rm -rf /run/systemd/system/rollcall-* /etc/rollcall
cp -a /installed /etc/rollcall
systemctl daemon-reload
systemctl start {" ".join(UNITS)}"""


@pytest.fixture(scope="module")
def installed_host(docker_client: docker.APIClient, destdir: Path) -> Iterator[SystemdHost]:
    """Yield a host on which both daemons are installed and started."""
    need_root()
    with systemd_image(docker_client) as image, booted_host(docker_client, image) as host:
        make_install(host, destdir)
        _start(host)
        host.run(SAVE)
        yield host


@pytest.fixture
def host(installed_host: SystemdHost) -> Iterator[SystemdHost]:
    """Yield the host; afterwards, both daemons run as installed, whatever a test did to them."""
    yield installed_host
    if installed_host.try_to(UNCHANGED)[0] != 0:
        installed_host.run(RESTORE)


def _start(host: SystemdHost) -> None:
    """Set what an operator sets after ``make install``, and start both."""
    host.run(f"sed -i 's|^registries: .*|{AGENT}|' /etc/rollcall/agent.yml")
    make_key = f"{BIN}/rollcall-registry --config /etc/rollcall/registry.yml node-key $(hostname)"
    host.run(f"{make_key} >/etc/rollcall/node.key")
    host.run("systemctl start rollcall-registry rollcall-agent")


def test_make_install_makes_keys_that_root_alone_reads_and_settings_that_a_daemon_reads(
    host: SystemdHost,
) -> None:
    keys = (
        *("agent-ops.key", "node.key", "node.secret"),
        *("ops.key", "prometheus.key", "scraper.key"),
    )
    said = host.run(f"cd /etc/rollcall && stat -c '%a %U' {' '.join(keys)}")
    assert said.splitlines() == ["600 root"] * len(keys)
    texts = [host.run(f"cat /etc/rollcall/{key}") for key in keys if key != "node.key"]
    assert [len(each) for each in texts] == [64] * len(texts)
    assert len(set(texts)) == len(texts)
    for name in ("agent", "registry"):
        assert host.run(f"stat -c '%a %G' /etc/rollcall/{name}.yml") == f"640 rollcall-{name}\n"


def test_make_install_restarts_what_runs_but_for_a_unit_that_rejects_its_settings(
    host: SystemdHost,
) -> None:
    before = {unit: host.pid(unit) for unit in UNITS}
    host.run("echo 'nonsense: 1' >>/etc/rollcall/agent.yml && cp -a /etc/rollcall /before")
    host.run(f"mkdir /cut && printf '{CUT}' >/cut/mv && chmod 755 /cut/mv")

    said = host.run(f"export PATH=/cut:$PATH && {MAKE_INSTALL}")

    assert "rollcall: rollcall-agent.service runs on with the earlier program\n" in said
    after = {unit: host.pid(unit) for unit in UNITS}
    assert {unit: after[unit] == before[unit] for unit in UNITS} == {
        UNITS[0]: False,
        UNITS[1]: True,
    }
    assert [host.state(unit) for unit in UNITS] == ["active"] * 2
    host.run("diff -r /before /etc/rollcall")
    assert host.try_to(f"ls -d {BIN}/../../venv.*")[0] != 0


def test_the_registry_does_not_find_the_key_of_the_agent(host: SystemdHost) -> None:
    there = f"nsenter --mount --target {host.pid(UNITS[0])}"
    as_registry = "setpriv --reuid rollcall-registry --regid rollcall-registry --init-groups"
    found = host.run(
        f"{there} {as_registry} find /etc/rollcall /run/credentials -type f -readable 2>&1 || true"
    )
    keys = [each for each in found.splitlines() if each.endswith(".key")]
    assert keys
    for key in keys:
        status, said = host.try_to(ACCESS.replace("/etc/rollcall/agent-ops.key", f"{key}"))
        assert (status, "HTTP Error 401" in said) == (1, True), key


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


@pytest.mark.parametrize(
    ("unit", "earlier"),
    [
        (UNITS[0], {"network-online.target"}),
        (UNITS[1], {"network-online.target", "docker.service"}),
    ],
)
def test_a_daemon_starts_after_the_network_and_what_it_uses_and_needs_neither(
    host: SystemdHost, unit: str, earlier: set[str]
) -> None:
    def named(name: str) -> set[str]:
        return set(host.run(f"systemctl show --property {name} --value {unit}").split())

    assert earlier <= named("After")
    assert "network-online.target" in named("Wants")
    assert not earlier & named("Requires")


def test_the_host_is_taken_with_the_key_that_is_its_own(host: SystemdHost) -> None:
    name = host.run("hostname").strip()
    until(lambda: f'"hostname":"{name}"' in host.run(NODES), "the host's node", within=SOON_SECONDS)


def test_the_fields_of_a_log_line_are_fields_of_the_journal(host: SystemdHost) -> None:
    name = host.run("hostname").strip()
    added = host.run(
        f"journalctl --output json --unit rollcall-registry ROLLCALL_NODE={name} | head -n 1"
    )
    line = json.loads(added)
    assert (line["ROLLCALL_EVENT"], line["PRIORITY"]) == ("node added", "6")
    assert line["SYSLOG_IDENTIFIER"] == "rollcall-registry"
    assert json.loads(line["MESSAGE"])["node"] == name
    warnings = "journalctl --output cat --priority warning --unit rollcall-agent"
    assert "container engine unreachable" in host.run(warnings)


@pytest.mark.release("a thousand heartbeats a second are a load")
def test_a_restart_of_the_registry_loses_no_heartbeat_of_a_thousand_a_second(
    host: SystemdHost, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "load.py").write_bytes(Path(heartbeat_load.__file__).read_bytes())
    host.put(tmp_path)
    host.run(
        "mkdir /load && systemd-run --unit load --property LimitNOFILE=16384 "
        f"{BIN}/python /load.py 127.0.0.1 7655 $(cat /etc/rollcall/ops.key) /load"
    )
    until(lambda: host.try_to("test -e /load/begun")[0] == 0, "heartbeats", within=SOON_SECONDS)
    before = host.pid("rollcall-registry")

    host.run("systemctl restart rollcall-registry")
    # Each restart may cut a heartbeat once, so none is to be sent over both.
    host.run("touch /load/pause")
    until(lambda: host.try_to("test -e /load/pause")[0] != 0, "answers", within=SOON_SECONDS)
    host.run("systemctl restart rollcall-registry")

    assert host.pid("rollcall-registry") != before
    host.run("touch /load/stop")
    until(lambda: host.state("load") != "active", "the last answers", within=4 * SOON_SECONDS)
    result = json.loads(host.run("cat /load/result.json"))
    assert result["sent"] == int(result["seconds"] * heartbeat_load.PER_SECOND) > 1000
    assert set(result["outcomes"]) <= {"200", "repeated"}, result
    assert result["outcomes"]["200"] == result["sent"]


def test_systemd_keeps_the_sockets_of_both_until_they_are_stopped(host: SystemdHost) -> None:
    for unit in UNITS:
        kept = f"systemctl show --property NFileDescriptorStore --value {unit}"
        assert host.run(kept) == "1\n"
        host.run(f"systemctl restart {unit}")
        assert host.run(kept) == "1\n"
        host.run(f"systemctl stop {unit}")
        assert host.run(kept) == "0\n"
        host.run(f"systemctl start {unit}")


def test_a_socket_is_not_kept_where_the_settings_no_longer_say(host: SystemdHost) -> None:
    file = "/etc/rollcall/registry.yml"
    kept = "systemctl show --property NFileDescriptorStore --value rollcall-registry"

    # This name also means ::1, which the host does not have.
    host.run(f"sed -i 's/^listen: 127.0.0.1:7655/listen: localhost:7755/' {file}")
    host.run("systemctl restart rollcall-registry")

    assert host.run(kept) == "1\n"
    assert "Connection refused" in host.try_to(NODES)[1]
    host.run(NODES.replace(":7655", ":7755"))
    host.run(f"sed -i 's/^listen: localhost:7755/listen: 127.0.0.1:7655/' {file}")
    host.run("systemctl restart rollcall-registry")
    assert host.run(kept) == "1\n"
    host.run(NODES)


def test_the_host_in_listen_may_change_while_the_port_stays(host: SystemdHost) -> None:
    file = "/etc/rollcall/registry.yml"
    kept = "systemctl show --property NFileDescriptorStore --value rollcall-registry"
    for before, after in (("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1")):
        host.run(f"sed -i 's/^listen: {before}:7655/listen: {after}:7655/' {file}")

        host.run("systemctl restart rollcall-registry")

        assert host.run(kept) == "1\n"
        host.run(NODES)


def test_a_socket_unit_may_listen_but_nowhere_else_than_the_settings_say(host: SystemdHost) -> None:
    unit = "/run/systemd/system/rollcall-registry.socket"
    host.run("systemctl stop rollcall-agent")  # its heartbeat would start the registry
    host.run("systemctl stop rollcall-registry")
    host.run(f"printf '[Socket]\\nListenStream=127.0.0.1:7655\\n' >{unit}")
    host.run("systemctl daemon-reload; systemctl start rollcall-registry.socket")
    assert host.state("rollcall-registry") == "inactive"
    host.run(NODES)  # which starts it
    assert host.state("rollcall-registry") == "active"

    host.run("systemctl stop rollcall-registry.socket rollcall-registry")
    host.run(f"sed -i s/7655/7755/ {unit}")
    host.run("systemctl daemon-reload; systemctl start rollcall-registry.socket")
    assert host.try_to("systemctl start rollcall-registry")[0] != 0

    rejected = "rollcall-registry.socket has 127.0.0.1:7755, but `listen` is 127.0.0.1:7655"
    # `systemctl status` shows it only until systemd waits for the next try.
    journal = "journalctl --unit rollcall-registry"
    until(lambda: rejected in host.run(journal), rejected, within=SOON_SECONDS)
    assert host.state("rollcall-registry") != "active"


@pytest.mark.parametrize(
    "unit", some_of(UNITS, UNITS[1], reason="the unit of the registry has the same lines")
)
def test_a_killed_daemon_is_started_again(host: SystemdHost, unit: str) -> None:
    before = host.pid(unit)
    host.run(f"systemctl kill --signal KILL {unit}")
    until(
        lambda: host.state(unit) == "active" and host.pid(unit) != before, unit, within=SOON_SECONDS
    )


def test_systemd_ends_a_daemon_that_hangs_and_starts_it_again(host: SystemdHost) -> None:
    impatient = "[Service]\\nWatchdogSec=2s\\nTimeoutAbortSec=1s\\n"
    for unit in UNITS:
        folder = f"/run/systemd/system/{unit}.service.d"
        host.run(f"mkdir {folder}; printf '{impatient}' >{folder}/watchdog.conf")
    host.run(f"systemctl daemon-reload; systemctl restart {' '.join(UNITS)}")
    before = {unit: host.pid(unit) for unit in UNITS}

    host.run(f"kill -STOP {' '.join(map(str, before.values()))}")

    def all_run_again() -> bool:
        pids = {unit: host.pid(unit) for unit in UNITS if host.state(unit) == "active"}
        return pids.keys() == before.keys() and not set(pids.values()) & set(before.values())

    until(all_run_again, "new processes", within=SOON_SECONDS)
    for unit in UNITS:
        assert "Watchdog timeout (limit 2s)" in host.run(f"journalctl --unit {unit}")


@pytest.mark.parametrize(
    ("unit", "key", "ask"),
    some_of(
        [(UNITS[0], "ops.key", NODES), (UNITS[1], "agent-ops.key", ACCESS)],
        (UNITS[1], "agent-ops.key", ACCESS),
        reason="the unit of the registry has the same lines",
    ),
)
def test_a_reload_takes_a_new_key_that_is_a_credential(
    host: SystemdHost, unit: str, key: str, ask: str
) -> None:
    before = host.pid(unit)
    host.run(f"cp -p /etc/rollcall/{key} /{key}.before")
    host.run(f"echo {secrets.token_hex(32)} >/etc/rollcall/{key}")
    assert host.try_to(ask)[0] != 0, "the new key is not known yet"

    host.run(f"systemctl reload {unit}")

    until(lambda: host.try_to(ask)[0] == 0, "the new key", within=SOON_SECONDS)
    assert host.pid(unit) == before
    credential = f"/run/credentials/{unit}.service/{key}"
    assert host.run(f"stat -c %a:%U {credential}") == f"400:{unit}\n"
    enter = f"nsenter --mount --target {before}"
    assert host.try_to(f"{enter} sh -c 'echo x >{credential}'")[0] != 0, "it is read-only"
    host.run(f"mv /{key}.before /etc/rollcall/{key}; systemctl reload {unit}")
    until(lambda: host.try_to(ask)[0] == 0, "the key of before", within=SOON_SECONDS)


def test_a_reload_takes_a_credential_that_is_new_in_the_unit(host: SystemdHost) -> None:
    key = "/etc/rollcall/other.key"
    folder = "/run/systemd/system/rollcall-registry.service.d"
    line = f"[Service]\\nLoadCredential=other.key:{key}\\n"
    nodes = NODES.replace("ops.key", "other.key")
    host.run(f"umask 077; echo {secrets.token_hex(32)} >{key}")
    host.run(f"mkdir {folder}; printf '{line}' >{folder}/key.conf; systemctl daemon-reload")
    host.run("sed -i 's/file: ops.key/file: other.key/' /etc/rollcall/registry.yml")
    assert host.try_to(nodes)[0] != 0, "the new key is not known yet"

    host.run("systemctl reload rollcall-registry")

    credentials = "/run/credentials/rollcall-registry.service"
    listed = f"cd {credentials}; stat -c %a:%U ops.key other.key"
    assert host.run(listed) == "400:rollcall-registry\n" * 2
    host.run("systemctl restart rollcall-registry")
    host.run(nodes)


@pytest.mark.parametrize(
    "unit", some_of(UNITS, UNITS[1], reason="the unit of the registry has the same lines")
)
def test_wrong_settings_are_rejected_by_a_reload_and_fail_a_restart_with_their_line(
    host: SystemdHost, unit: str
) -> None:
    before = host.pid(unit)
    file = f"/etc/rollcall/{unit.removeprefix('rollcall-')}.yml"
    host.run(f"echo 'nonsense: 1' >>{file}")
    line = host.run(f"wc -l <{file}").strip()
    mistake = f"{file}:{line}: nonsense: unknown setting"

    def reported() -> bool:
        return mistake in host.try_to(f"systemctl status --lines 20 {unit}")[1]

    assert host.try_to(f"systemctl reload {unit}")[0] != 0
    until(reported, mistake, within=SOON_SECONDS)
    assert (host.state(unit), host.pid(unit)) == ("active", before)

    # From here on, it shows the messages of the next start.
    assert host.try_to(f"systemctl restart {unit}")[0] != 0
    assert host.state(unit) == "failed"
    until(reported, mistake, within=SOON_SECONDS)
    host.run(f"sed -i '/^nonsense/d' {file}; systemctl start {unit}")
    assert host.state(unit) == "active"


def test_an_instance_of_the_template_reloads_its_own_settings(host: SystemdHost) -> None:
    own = "s/^listen:.*/listen: 127.0.0.1:7855/; s/registry.db/registry1.db/"
    host.run(f"cd /etc/rollcall; sed '{own}' registry.yml >registry1.yml; chmod 644 registry1.yml")
    host.run("systemctl start rollcall-registry@1 && systemctl reload rollcall-registry@1")
    host.run("echo 'nonsense: 1' >>/etc/rollcall/registry1.yml")
    assert host.try_to("systemctl reload rollcall-registry@1")[0] != 0
    assert host.state("rollcall-registry@1") == "active"
    host.run("systemctl stop rollcall-registry@1")


def test_both_work_under_the_documented_address_list_and_it_is_enforced(host: SystemdHost) -> None:
    section = Page("systemd/README.md").section("Address allow-list")
    ((_, documented),) = FENCED.findall(section)
    narrow = "[Service]\nIPAddressAllow=\nIPAddressAllow=192.0.2.0/24\n"

    _use_address_list(host, documented)
    host.run(NODES)
    until(
        lambda: host.try_to(f"{BIN}/rollcall-agent status")[0] == 0,
        "a heartbeat",
        within=SOON_SECONDS,
    )

    _use_address_list(host, documented + narrow)
    assert "timed out" in host.try_to(NODES.replace("timeout=60", "timeout=1"))[1]

    _use_address_list(host, "")
    host.run(NODES)


def _use_address_list(host: SystemdHost, text: str) -> None:
    """Use a drop-in for both daemons."""
    for unit in UNITS:
        folder = f"/run/systemd/system/{unit}.service.d"
        host.run(f"mkdir -p {folder}; printf '{text}' >{folder}/addresses.conf")
    host.run("systemctl daemon-reload")
    host.run(f"systemctl stop {' '.join(UNITS)}; systemctl start {' '.join(UNITS)}")


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
