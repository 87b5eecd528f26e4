"""systemd accepts the units, and what they name is what gets installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.e2e.installation import install

TOP = Path(__file__).parents[2]
UNITS = ("rollcall-agent.service", "rollcall-registry.service")
INSTALLED = "/opt/rollcall/venv/bin/"


@pytest.mark.real("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    text = (TOP / "systemd" / unit).read_text()
    assert f"ExecStart={INSTALLED}" in text
    here = tmp_path / unit
    # systemd also looks whether the program is there: here it is in this environment.
    here.write_text(text.replace(INSTALLED, f"{Path(sys.executable).parent}/"))
    done = subprocess.run(
        ["systemd-analyze", "verify", here], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_does_not_die_with_the_engine_nor_for_good(unit: str) -> None:
    lines = (TOP / "systemd" / unit).read_text().splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(lines)
    assert not [line for line in lines if line.startswith(("Requires=", "BindsTo="))]


@pytest.mark.real
@pytest.mark.parametrize("name", ["agent", "registry"])
def test_make_install_lays_out_the_daemon_its_unit_and_settings(name: str, destdir: Path) -> None:
    venv = destdir / "opt/rollcall/venv"
    script = venv / "bin" / f"rollcall-{name}"
    assert script.read_text().startswith(f"#!{INSTALLED}python")
    assert f"rollcall-{name}" in _output(venv / "bin/python", script, "--version")
    unit = destdir / f"etc/systemd/system/rollcall-{name}.service"
    assert f"{INSTALLED}rollcall-{name}" in unit.read_text()
    settings = (destdir / f"etc/rollcall/{name}.yml").read_text()
    assert f"\nstore: sqlite:///var/lib/rollcall-{name}/{name}.db\n" in settings
    assert f"\nStateDirectory=rollcall-{name}\n" in unit.read_text()


@pytest.mark.real
def test_make_install_renews_the_program_and_leaves_settings_alone(destdir: Path) -> None:
    settings = destdir / "etc/rollcall/agent.yml"
    before = settings.read_text()
    settings.write_text(before + "# mine\n")
    stale = destdir / "opt/rollcall/venv/stale"
    stale.touch()
    install(destdir)
    assert settings.read_text() == before + "# mine\n"
    assert not stale.exists()
    assert not list(destdir.glob("etc/rollcall/*.key")), "keys belong to a host, not to a package"


def _output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout
