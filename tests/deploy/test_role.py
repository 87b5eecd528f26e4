"""The role for Ansible: what it makes of settings."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.pages import TOP

VARIABLES = TOP / "deploy/ansible/roles/rollcall/vars/main.yml"
OLD, NEW = "/etc/rollcall/node-secret", "/etc/rollcall/node-secret-2"


def evaluated(expression: str, variables: dict[str, Any], folder: Path) -> Any:
    """Return what an expression is by the role's variables, some of which are given."""
    result = folder / "result.json"
    copy = {"content": f"{{{{ {expression} | to_json }}}}", "dest": str(result), "mode": "0600"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(VARIABLES)],
        "tasks": [{"ansible.builtin.copy": copy}],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "given.yml").write_text(yaml.safe_dump(variables))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "--inventory=localhost,", f"--extra-vars=@{folder / 'given.yml'}", "play.yml"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "ANSIBLE_HOME": str(folder / "home"), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(result.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ([{"file": NEW}, {"file": OLD}], {NEW, OLD}),
        ({"file": NEW}, {NEW}),
        ({"file": "node-secret-2"}, {NEW}),
        ([{"value": "s" * 32}], set()),
        (None, set()),
    ],
)
def test_no_secret_that_is_in_use_counts_as_old(
    setting: Any, named: set[str], tmp_path: Path
) -> None:
    variables: dict[str, Any] = {
        "rollcall_settings": {"node_secret": setting},
        "rollcall_node_secrets": [],
    }

    assert set(evaluated("rollcall_named_secrets", variables, tmp_path)) == named

    variables["rollcall_node_secrets"] = [{"file": OLD}]
    assert set(evaluated("rollcall_named_secrets", variables, tmp_path)) == {*named, OLD}
