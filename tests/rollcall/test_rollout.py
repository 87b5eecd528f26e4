"""The page about rolling out to a fleet, step by step, as it stands."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FreePort
from tests.rollcall.machines import Machines

pytestmark = pytest.mark.real("openssl", "curl", "bash", "promtool")
TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "rollout.md"
REGISTRY, FIRST, SECOND, RENAMED = "localhost", "web-1", "web-2", "web-3"
# What the page calls machines, and what stands for them here.
NAMES = {
    "registry.example.com": REGISTRY,
    "web-1.example.com": FIRST,
    "web-2.example.com": SECOND,
    "web-3.example.com": RENAMED,
}
WAIT = """
until_status() {  # HOST WORDS: wait until a host's status shows the words
  for _ in $(seq 200); do
    if ssh "root@$1" "$BIN/rollcall-agent" status | tee status.txt | grep -q "$2"; then return; fi
    sleep 0.1
  done
  cat status.txt; return 1
}
until_true() {  # COMMAND: wait until it succeeds
  for _ in $(seq 200); do if "$@" > out.txt 2>&1; then return; fi; sleep 0.1; done
  cat out.txt; return 1
}
listed() { ask "https://$REGISTRY:$PORT/nodes/$1"; }
not_listed() { ! listed "$1"; }
"""
# What must hold after a section of the page, by the first words of its heading.
CHECKS = {
    "3.": 'until_true ask "https://$REGISTRY:$PORT/nodes"',
    "4.": f"until_status {FIRST} taken; until_status {SECOND} taken",
    "5.": f"listed {FIRST} | grep -q service:web; listed {SECOND} | grep -q service:web;"
    "promtool check config prometheus/prometheus.yml",
    "6.": f"until_status {FIRST} taken",
    "7.": f"until_status {FIRST} taken; until_status {SECOND} taken",
    "8.": f"until_true listed {RENAMED}; until_true not_listed {SECOND}; not_listed {FIRST}",
}


def sections(page: str) -> list[tuple[str, str]]:
    """Give each section's heading and the commands in it."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    blocks = [
        re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) for text in parts[1::2]
    ]
    return list(zip(parts[::2], ["\n".join(each) for each in blocks], strict=True))


@pytest.fixture
def machines(tmp_path: Path, free_port: FreePort) -> Iterator[Machines]:
    ports = {name: free_port() for name in (REGISTRY, FIRST, SECOND)}
    made = Machines(tmp_path, programs=Path(sys.executable).parent, ports=ports)
    (tmp_path / "port").write_text(str(ports[REGISTRY]))
    yield made
    made.close()


def test_the_page_can_be_followed_from_its_first_line_to_its_last(
    machines: Machines, tmp_path: Path
) -> None:
    page = PAGE.read_text()
    for name, stand_in in NAMES.items():
        page = page.replace(name, stand_in)
    # Each host beats every second here, so that nothing has to be waited for long.
    page = page.replace("listen: 0.0.0.0:7656\n", "listen: 0.0.0.0:7656\nheartbeat_seconds: 1\n")
    page = page.replace("PORT=7655", f"PORT={(tmp_path / 'port').read_text()}")
    page = page.replace("BIN=/opt/rollcall/venv/bin", f"BIN={machines.programs}")
    script = ["set -euo pipefail", WAIT]
    for heading, commands in sections(page):
        script += [f"echo '== {heading}'", commands, CHECKS.get(heading[:2], "")]
    work = tmp_path / "work"
    work.mkdir()

    with (tmp_path / "output").open("wb") as output:
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=work,
            env=machines.environment(),
            stdout=output,
            stderr=output,
            timeout=240,
            check=False,
        )

    assert done.returncode == 0, (tmp_path / "output").read_text()
    for machine in (FIRST, SECOND):
        log = machines.log(machine, "rollcall-agent")
        assert "certificate_refused" not in log, log
        assert "wrong_key" not in log, log


def test_the_page_names_the_folder_and_the_users_of_the_units() -> None:
    page = PAGE.read_text()
    folder = re.findall(r"^BIN=(.*)$", page, re.MULTILINE)
    users = set(re.findall(r"^ *deliver .* (\S+)$", page, re.MULTILINE))

    for daemon in ("rollcall-agent", "rollcall-registry"):
        unit = (TOP / "systemd" / f"{daemon}.service").read_text()
        assert re.findall(r"^ExecStart=(\S*)/", unit, re.MULTILINE) == folder
        assert re.findall("^User=(.*)$", unit, re.MULTILINE)[0] in users
        credentials = re.findall("^LoadCredential=(.*):", unit, re.MULTILINE)
        # Of these a running daemon sees no change, and the page changes what it names.
        assert not any(f": {name}" in page or f"{name}\n" in page for name in credentials)


def test_every_section_with_commands_has_what_must_hold_after_it() -> None:
    numbered = {heading[:2] for heading, commands in sections(PAGE.read_text()) if commands}

    assert numbered - {"1.", "2."} == CHECKS.keys()
