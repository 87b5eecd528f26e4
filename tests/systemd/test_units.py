"""systemd accepts the units, and what they name is what gets installed."""

import math
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import nkeys
import pytest
import yaml

from config.agent import AgentSettings
from config.registry import RegistrySettings
from deploy.version import version
from httpd.server.handshakes import MAX_HANDSHAKES
from httpd.server.limits import MAX_UNFINISHED_BYTES
from tests.support.daemons import FreePort
from tests.support.e2e.installation import install
from tests.support.pages import Page, dead_links
from tests.support.registry.nats.servers import NatsCluster

TOP = Path(__file__).parents[2]
UNITS = ("rollcall-agent.service", "rollcall-registry.service", "rollcall-registry@.service")
MAX_EXPOSURE = 11  # in tenths: `systemd-analyze security` says at most 1.1
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


@pytest.mark.real("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_is_confined(unit: str, tmp_path: Path) -> None:
    here = tmp_path / unit
    here.write_text((TOP / "systemd" / unit).read_text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSURE}", here],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_does_not_die_with_the_engine_nor_for_good(unit: str) -> None:
    lines = (TOP / "systemd" / unit).read_text().splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(lines)
    assert not [line for line in lines if line.startswith(("Requires=", "BindsTo="))]


def memory_parts(daemon: str) -> dict[str, int]:
    """Return what a daemon may take at most in MiB, as the page sums it up."""
    column = ("registry", "agent").index(daemon)
    table = Page("docs/operations.md").section("Memory")
    rows = re.findall(r"^\| ([^|:]+)[^|]* \| (\d*) ?\| (\d*) ?\|$", table, re.MULTILINE)
    return {what: int(figures[column]) for what, *figures in rows if figures[column]}


@pytest.mark.parametrize(
    ("name", "defaults"), [("registry", RegistrySettings()), ("agent", AgentSettings())]
)
def test_the_unit_allows_the_memory_that_the_defaults_may_take(
    name: str, defaults: RegistrySettings | AgentSettings
) -> None:
    parts = memory_parts(name)
    assert parts["connections"] == math.ceil(defaults.max_connections * 46 / 1024)
    handshakes = min(defaults.max_connections, MAX_HANDSHAKES)
    assert parts["TLS handshakes"] == math.ceil(handshakes * 66 / 1024)
    assert parts["requests that are not complete"] >= 2 * MAX_UNFINISHED_BYTES / 2**20
    if isinstance(defaults, RegistrySettings):
        assert parts["nodes"] == defaults.nodes.max_mib
    unit = ConfigParser(strict=False, interpolation=None)
    unit.read(TOP / f"systemd/rollcall-{name}.service")
    allowed = unit["Service"]["MemoryMax"]
    assert sum(parts.values()) <= int(allowed[:-1]) * {"M": 1, "G": 1024}[allowed[-1]]


@pytest.mark.real
@pytest.mark.parametrize("name", ["agent", "registry"])
def test_make_install_lays_out_the_daemon_its_unit_and_settings(name: str, destdir: Path) -> None:
    venv = destdir / "opt/rollcall/venv"
    script = venv / "bin" / f"rollcall-{name}"
    assert script.read_text().startswith(f"#!{INSTALLED}python")
    shown = _output(venv / "bin/python", script, "--version")
    assert shown == f"rollcall-{name} {version()}\n"
    unit = destdir / f"etc/systemd/system/rollcall-{name}.service"
    assert f"{INSTALLED}rollcall-{name}" in unit.read_text()
    settings = (destdir / f"etc/rollcall/{name}.yml").read_text()
    assert f"\nstore: sqlite:///var/lib/rollcall-{name}/{name}.db\n" in settings
    assert f"\nStateDirectory=rollcall-{name}\n" in unit.read_text()


@pytest.mark.parametrize(
    ("name", "ops", "scrapes"),
    [("agent", "agent-ops.key", "prometheus.key"), ("registry", "ops.key", "scraper.key")],
)
def test_a_new_host_starts_from_settings_with_the_keys_that_are_made_and_its_unit_loads(
    name: str, ops: str, scrapes: str
) -> None:
    text = _output("sh", TOP / "systemd/settings.sh", name)
    shipped = yaml.safe_load((TOP / f"config/{name}.yml").read_text())
    settings = yaml.safe_load(text)

    assert [(key["file"], key["allow"]) for key in settings["keys"]] == [
        (ops, ["read", "write"]),
        (scrapes, ["scrape"]),
    ]
    unit = (TOP / f"systemd/rollcall-{name}.service").read_text()
    loaded = set(re.findall(r"^LoadCredential=(\S+):/etc/rollcall/\1$", unit, re.MULTILINE))
    assert loaded == {ops, scrapes, "node.key" if name == "agent" else "node.secret"}
    assert settings.pop("node_secret", None) == (
        {"file": "node.secret"} if name == "registry" else None
    )
    assert settings.keys() == shipped.keys()
    assert len(text.splitlines()) == len((TOP / f"config/{name}.yml").read_text().splitlines())


@pytest.mark.real
def test_the_daemons_users_may_read_what_make_install_lays_out(destdir: Path) -> None:
    settings = {destdir / "etc" / "rollcall" / f"{name}.yml" for name in ("agent", "registry")}
    paths = {path for path in destdir.rglob("*") if not path.is_symlink()} - settings
    expected = {path: 0o005 if path.is_dir() else 0o004 for path in paths}

    assert [path for path, mode in expected.items() if path.stat().st_mode & mode != mode] == []
    assert {path.stat().st_mode & 0o777 for path in settings} == {0o640}


def test_a_failed_installation_leaves_no_half_of_it(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$2" != venv ] || mkdir -p "$5"\n')
    python.chmod(0o755)
    destdir = tmp_path / "host"
    done = subprocess.run(
        ["sh", "systemd/install.sh"],
        cwd=TOP,
        env={**os.environ, "DESTDIR": str(destdir), "PYTHON": str(python)},
        capture_output=True,
        check=False,
    )

    assert done.returncode != 0
    assert list((destdir / "opt" / "rollcall").iterdir()) == []


def test_no_link_of_the_pages_that_make_install_lays_out_is_dead(destdir: Path) -> None:
    assert dead_links(destdir / "opt/rollcall/docs") == []
    assert dead_links(destdir / "opt/rollcall/systemd") == []
    for unit in UNITS:
        text = (destdir / "etc/systemd/system" / unit).read_text()
        named = re.findall(r"file:///(opt/rollcall/\S+)", text)
        assert named
        assert [page for page in named if not (destdir / page).is_file()] == []


@pytest.mark.real
def test_make_install_lays_out_the_unit_of_several_registries_on_one_host(destdir: Path) -> None:
    template = destdir / "etc/systemd/system/rollcall-registry@.service"
    assert not template.is_symlink()
    assert "--config /etc/rollcall/registry%i.yml" in template.read_text()


@pytest.mark.real
def test_the_installed_registry_can_keep_its_nodes_in_nats(
    destdir: Path, tmp_path: Path, free_port: FreePort
) -> None:
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    users = f"authorization {{ users: [{{nkey: {public}}}] }}\n"
    file = tmp_path / "registry.yml"
    venv = destdir / "opt/rollcall/venv/bin"
    with NatsCluster(folder=tmp_path / "n", free_port=free_port, settings=users) as servers:
        nats = {**servers.settings(), "nkey": {"value": seed.decode()}}
        keys = [{"name": "ops", "value": "0123456789abcdef", "allow": ["read"]}]
        file.write_text(yaml.safe_dump({"store": servers.url(), "nats": nats, "keys": keys}))

        checked = _output(venv / "python", venv / "rollcall-registry", "--config", file, "check")

    assert "does not exist yet, the first start makes it" in checked


@pytest.mark.release("a second installation; one over another is in tests/e2e/test_systemd.py")
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
