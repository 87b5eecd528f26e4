"""`inventory`: what Ansible makes of it, also where hosts would have it run something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.process import CommandLine
from tests.support.daemons import Daemon, Daemons

pytestmark = pytest.mark.real
SHOP = ["service:web", "app:my.shop", "Rack A/12"]


def evil(folder: Path, number: int) -> str:
    """Return a text that makes a file, if it is taken for a template."""
    return f"{{{{ lookup('pipe', 'touch {folder}/run{number}') }}}}"


@pytest.fixture
def registry(daemons: Daemons, rollcall: CommandLine, tmp_path: Path) -> Daemon:
    """Return a registry with two hosts, and an inventory script for it."""
    started = daemons.registry(nodes={"warm_up_seconds": 0})
    kv = {
        "motd": evil(tmp_path, 1),
        "ansible_ssh_common_args": f"-o ProxyCommand='touch {tmp_path}/run2'",
        evil(tmp_path, 3): "a key",
    }
    nodes = {"web-1": {"labels": SHOP, "kv": kv}, "db-1": {"labels": [evil(tmp_path, 4)], "kv": {}}}
    for hostname, node in nodes.items():
        started.ask("POST", f"/nodes/{hostname}", json=node).raise_for_status()
    rollcall.login(started)
    script = tmp_path / "inventory"
    script.write_text(f'#!/bin/sh\nexec {rollcall.program} inventory "$@"\n')
    script.chmod(0o755)
    return started


def ansible(rollcall: CommandLine, folder: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name(program), "-i", "inventory", *arguments],
        cwd=folder,
        env={**rollcall.environment, "ANSIBLE_LOCALHOST_WARNING": "False"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.usefixtures("registry")
def test_what_hosts_say_is_printed_and_never_run(rollcall: CommandLine, tmp_path: Path) -> None:
    listed = json.loads(ansible(rollcall, tmp_path, "ansible-inventory", "--list"))
    expression = (
        "msg={{ [rollcall_kv.motd | default(0), rollcall_labels, rollcall_kv, rollcall_state] }}"
    )
    shown = ansible(rollcall, tmp_path, "ansible", "all", "-m", "debug", "-a", expression)
    arguments = "msg={{ ansible_ssh_common_args | default('none') }}"
    unset = ansible(
        rollcall, tmp_path, "ansible", "rollcall_app_my_shop", "-m", "debug", "-a", arguments
    )

    variables = listed["_meta"]["hostvars"]
    assert set(variables["web-1"]) == {
        *("rollcall_labels", "rollcall_kv", "rollcall_state", "rollcall_address")
    }
    groups = {name for name, group in listed.items() if "web-1" in group.get("hosts", ())}
    assert groups == {
        *("rollcall_label_service_web", "rollcall_label_rack_a_12"),
        *("rollcall_app_my_shop", "rollcall_state_fresh"),
    }
    assert shown.count("lookup('pipe'") >= 3
    assert '"msg": "none"' in unset
    assert sorted(tmp_path.glob("run*")) == []


def test_a_registry_that_warms_up_gives_no_partial_list(
    daemons: Daemons, rollcall: CommandLine
) -> None:
    rollcall.login(daemons.registry(nodes={"warm_up_seconds": 300}))

    ran = rollcall.run("inventory", "--list")
    neither = rollcall.run("inventory")

    assert (ran.returncode, ran.stdout, neither.returncode) == (1, "", 2)
    assert "warms up" in ran.stderr
