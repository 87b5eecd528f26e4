"""The page about rolling out to a fleet: what its commands name.

It is followed from its first line to its last in `tests/deploy/test_rollout_page.py`.
"""

import os
import re
import socket
import sys
from pathlib import Path

import pytest

from tests.support.daemons import FreePort
from tests.support.e2e.rollout_page import CHECKS
from tests.support.pages import TOP, Page, run

# The paragraph on one machine without root says what is different there, and how to start both.
HERE = [
    (r"^REGISTRY=.*$", "REGISTRY=localhost"),
    (r"^HOSTS=.*$", "HOSTS={hostname}"),
    (r"sqlite:///var/lib/rollcall-(\w+)/", "sqlite:///{folder}/"),
    (r"^ *(deliver|ssh) [\"r$].*$", ""),
    # What the paragraph leaves to the reader, and tests choose.
    (r"^PORT=.*$", "PORT={registry_port}"),
    (r"^listen: 0.0.0.0:7656$", "listen: 127.0.0.1:{agent_port}"),
]
REGISTRY = """\
rollcall-registry --config registry/registry.yml &
until (: < "/dev/tcp/localhost/$PORT") 2> /dev/null; do sleep 1; done
"""
AGENT = """\
rollcall-agent --config "$host/agent.yml" &
until rollcall-agent --config "$host/agent.yml" status; do sleep 1; done
export ROLLCALL_CONFIG="$PWD/operator/contexts.yml"
rollcall login "https://$REGISTRY:$PORT" --key-file registry/ops \\
  --agent-secret-file operator/agent-secret-ops \\
  --ca ca.crt --certificate operator/tls.crt --certificate-key operator/tls.key
rollcall apps "$host" > apps.txt 2>&1 || grep 'container engine' apps.txt
"""
STARTED = {"3. Set up the registry": [REGISTRY, ""], "4. Set up the hosts": [AGENT]}

pytestmark = pytest.mark.page("docs/rollout.md")


def test_the_page_names_the_folder_and_the_users_of_the_units(page: Page) -> None:
    commands = "".join(block.text for block in page.blocks("sh"))
    folder = re.findall(r"^BIN=(.*)$", commands, re.MULTILINE)
    users = set(re.findall(r"^ *deliver .* (\S+)$", commands, re.MULTILINE))

    for daemon in ("rollcall-agent", "rollcall-registry"):
        unit = (TOP / "systemd" / f"{daemon}.service").read_text()
        assert re.findall(r"^ExecStart=(\S*)/", unit, re.MULTILINE) == folder
        assert re.findall("^User=(.*)$", unit, re.MULTILINE)[0] in users
        credentials = re.findall("^LoadCredential=(.*):", unit, re.MULTILINE)
        # A running daemon sees no change of these, and the page changes the files that it names.
        assert not any(f": {name}" in commands or f"{name}\n" in commands for name in credentials)


def test_every_section_with_commands_has_what_must_hold_after_it(page: Page) -> None:
    preparing = {"1. Name the machines", "Install the package", "2. Create a CA"}

    assert {block.heading for block in page.blocks("sh")} - preparing == CHECKS.keys()


@pytest.mark.real("openssl", "curl")
def test_the_page_sets_up_tls_on_one_machine_without_root(
    page: Page, tmp_path: Path, free_port: FreePort
) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    sections = ["1. Name the machines", "2. Create a CA", *STARTED]
    script = page.script(only=sections, checks=STARTED)
    values = {
        "hostname": socket.gethostname(),
        "folder": folder,
        "registry_port": free_port(),
        "agent_port": free_port(),
    }
    for pattern, text in HERE:
        script, count = re.subn(pattern, text.format(**values), script, flags=re.MULTILINE)
        assert count, pattern

    programs = str(Path(sys.executable).parent)
    path = f"{programs}:{os.environ['PATH']}"
    shown = run(script, folder=folder, environment={**os.environ, "PATH": path, "no_proxy": "*"})

    assert "    taken " in shown
    assert "/var/lib" not in shown
