"""The page about rolling out to a fleet, step by step, as it stands."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import FreePort
from tests.support.e2e.rollout_page import CHECKS, NAMES, rollout_script
from tests.support.e2e.simulated_hosts import SimulatedHosts
from tests.support.pages import TOP, Page, run

pytestmark = [
    pytest.mark.real("openssl", "curl", "bash", "promtool"),
    pytest.mark.page("docs/rollout.md"),
]
# These machines have the programs already.
INSTALLATION = "Install the package"
REGISTRY, FIRST, SECOND = "localhost", "web-1", "web-2"
# What the page calls machines, and what stands for them here.
STAND_INS = dict(zip(NAMES, (REGISTRY, FIRST, SECOND, "web-3"), strict=True))


@pytest.fixture
def simulated_hosts(tmp_path: Path, free_port: FreePort) -> Iterator[SimulatedHosts]:
    ports = {name: free_port() for name in (REGISTRY, FIRST, SECOND)}
    made = SimulatedHosts(tmp_path, programs=Path(sys.executable).parent, ports=ports)
    (tmp_path / "port").write_text(str(ports[REGISTRY]))
    yield made
    made.close()


def test_the_page_can_be_followed_from_its_first_line_to_its_last(
    page: Page, simulated_hosts: SimulatedHosts, tmp_path: Path
) -> None:
    places = {
        "PORT=7655": f"PORT={(tmp_path / 'port').read_text()}",
        "BIN=/opt/rollcall/venv/bin": f"BIN={simulated_hosts.programs}",
    }
    work, script = tmp_path / "work", rollout_script(page, without={INSTALLATION})
    (work / "rollcall").mkdir(parents=True)  # the sources, which the package is built from
    (work / "rollcall" / "deploy").symlink_to(TOP / "deploy")
    for words, others in (STAND_INS | places).items():
        assert words in script
        script = script.replace(words, others)

    run(script, folder=work, environment=simulated_hosts.environment())

    for machine in (FIRST, SECOND):
        log = simulated_hosts.log(machine, "rollcall-agent")
        assert "certificate_refused" not in log, log
        assert "wrong_key" not in log, log


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
    preparing = {"1. Name the machines", INSTALLATION, "2. Create a CA"}

    assert {block.heading for block in page.blocks("sh")} - preparing == CHECKS.keys()
