"""The page about rolling out to a fleet, step by step, as it stands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FreePort
from tests.support.e2e.rollout_page import CHECKS, NAMES, ROLLOUT_PAGE, TOP, script, sections
from tests.support.e2e.simulated_hosts import SimulatedHosts

pytestmark = pytest.mark.real("openssl", "curl", "bash", "promtool")
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
    simulated_hosts: SimulatedHosts, tmp_path: Path
) -> None:
    places = {
        "PORT=7655": f"PORT={(tmp_path / 'port').read_text()}",
        "BIN=/opt/rollcall/venv/bin": f"BIN={simulated_hosts.programs}",
    }
    work = tmp_path / "work"
    work.mkdir()

    with (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            ["bash", "-c", script(replaced=STAND_INS | places)],
            cwd=work,
            env=simulated_hosts.environment(),
            stdout=output,
            stderr=output,
            timeout=240,
            check=False,
        )

    assert done.returncode == 0, (tmp_path / "output").read_text()
    for machine in (FIRST, SECOND):
        log = simulated_hosts.log(machine, "rollcall-agent")
        assert "certificate_refused" not in log, log
        assert "wrong_key" not in log, log


def test_the_page_names_the_folder_and_the_users_of_the_units() -> None:
    folder = re.findall(r"^BIN=(.*)$", ROLLOUT_PAGE, re.MULTILINE)
    users = set(re.findall(r"^ *deliver .* (\S+)$", ROLLOUT_PAGE, re.MULTILINE))

    for daemon in ("rollcall-agent", "rollcall-registry"):
        unit = (TOP / "systemd" / f"{daemon}.service").read_text()
        assert re.findall(r"^ExecStart=(\S*)/", unit, re.MULTILINE) == folder
        assert re.findall("^User=(.*)$", unit, re.MULTILINE)[0] in users
        credentials = re.findall("^LoadCredential=(.*):", unit, re.MULTILINE)
        # Of these a running daemon sees no change, and the page changes what it names.
        assert not any(
            f": {name}" in ROLLOUT_PAGE or f"{name}\n" in ROLLOUT_PAGE for name in credentials
        )


def test_every_section_with_commands_has_what_must_hold_after_it() -> None:
    numbered = {heading[:2] for heading, commands in sections(ROLLOUT_PAGE) if commands}

    assert numbered - {"1.", "2."} == CHECKS.keys()
