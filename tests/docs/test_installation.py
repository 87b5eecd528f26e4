"""The pages about installation: pipx, and a host on which systemd is process 1."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

import docker
import pytest

from dev.processes import with_network
from tests.support.e2e.make_install import make_install
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image
from tests.support.pages import TOP, Page
from tests.support.requirements import need_root

# The files are laid out already; one host is all of those that the page speaks of.
FUNCTIONS = """
apt-get() { :; }
make() { [ "$*" = install ]; }
scp() { cp "$1" "${2#*:}"; }
status() { /opt/rollcall/venv/bin/rollcall-agent status > status.txt; }
registered() { until status; do sleep 1; done; }
"""
CHECKS = {
    "Install": [
        "cd /opt/rollcall/systemd; grep -o '\\.\\./docs/[a-z.]*' README.md | xargs ls; cd /"
    ],
    "The registry": ["systemctl is-active rollcall-registry"],
    "An agent": ["", "systemctl is-active rollcall-agent; registered", ""],
    "Remove": [
        "gone /etc/systemd/system/rollcall-* /etc/rollcall /opt/rollcall /var/lib/rollcall-*"
    ],
}
PROGRAMS = """
rollcall-agent --help
rollcall-registry --help
pipx list --short | grep '^rollcalld '
"""


@pytest.fixture
def host(docker_client: docker.APIClient, destdir: Path) -> Iterator[SystemdHost]:
    """Yield a host after ``make install``."""
    need_root()
    with systemd_image(docker_client) as image, booted_host(docker_client, image) as booted:
        make_install(booted, destdir)
        yield booted


@pytest.mark.real("make", "mmdebstrap")
@pytest.mark.page("systemd/README.md")
def test_each_command_works_in_its_order(page: Page, host: SystemdHost, tmp_path: Path) -> None:
    script = page.script(checks=CHECKS, before=FUNCTIONS)
    script = script.replace("registry.example.com", "127.0.0.1")
    script = script.replace("web-1.example.com", host.run("hostname").strip())
    (tmp_path / "page.sh").write_text(script)
    tmp_path.chmod(0o755)  # it becomes the root folder
    host.put(tmp_path)

    output = host.run("bash /page.sh 2>&1")

    assert "NOT TAKEN" not in output
    assert "    taken " in output
    assert ": taken out" in output


@pytest.mark.long(1)
@pytest.mark.real("pipx")
@pytest.mark.page("docs/install.md")
def test_pipx_installs_all_programs_from_the_source(page: Page, tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = ignore_patterns(".git", ".venv", "var", "dist", "*_cache", "__pycache__")
    copytree(TOP, source, ignore=ignored, symlinks=True)
    script = page.script(only=["pipx"], before=f"cd {source}", checks={"pipx": [PROGRAMS]})
    settings_of_pip = os.environ.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))
    own = {
        "HOME": str(tmp_path),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "XDG_CONFIG_HOME": settings_of_pip,
    }

    done = subprocess.run(
        with_network(["bash", "-c", script]),
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Runs this host's apps" in done.stdout
