"""The pages about installation: pipx, and a host on which systemd is process 1."""

import os
import re
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

# The host has no openssl.
OPENSSL = "openssl() { python3 -c 'import secrets; print(secrets.token_hex(32))'; }"
# The units start the daemons.
STARTS = re.compile(r"^rollcall-\w+ --config \S+ (?:status|& \w+=\$!)$", re.MULTILINE)
# An ordinary user without a session, as in a shell of `su`.
AS_JOE = (
    "cd /home/joe && runuser -u joe -- env HOME=/home/joe XDG_RUNTIME_DIR=/run/user/$(id -u joe)"
    " PATH=/home/joe/.local/bin:$PATH"
)
UNTIL_REGISTERED = "cd rollcall && until rollcall-agent --config agent.yml status; do sleep 1; done"
LINGER = 'loginctl enable-linger "$(id -un)"\n'
# systemd starts the manager of a user soon after.
UNTIL_MANAGER = 'until [ -S "$XDG_RUNTIME_DIR/systemd/private" ]; do sleep 1; done\n'
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


@pytest.mark.release("a systemd host of a Debian tree of its own")
@pytest.mark.long(1)
@pytest.mark.real("make", "mmdebstrap")
@pytest.mark.page("docs/install.md")
def test_the_units_of_a_user_run_without_a_session_and_after_a_boot(
    page: Page, destdir: Path, docker_client: docker.APIClient, tmp_path: Path
) -> None:
    need_root()
    settings = Page("docs/operations.md").script(
        only=["Running a registry", "Running an agent"], before=OPENSSL
    )
    (tmp_path / "settings.sh").write_text(STARTS.sub("", settings))
    units = page.script(only=["Units without root"])
    assert LINGER in units
    (tmp_path / "units.sh").write_text(units.replace(LINGER, LINGER + UNTIL_MANAGER))
    (tmp_path / "rollcall").mkdir()
    tmp_path.chmod(0o755)
    with (
        systemd_image(docker_client, "libpam-systemd", "polkitd") as image,
        booted_host(docker_client, image) as host,
    ):
        make_install(host, destdir)
        host.run("useradd --create-home joe")
        host.put(tmp_path, "/home/joe")
        host.run("mkdir /home/joe/.local; ln -s /opt/rollcall/venv/bin /home/joe/.local/bin")
        host.run("chown -R joe: /home/joe")
        host.run(f"{AS_JOE} sh -c 'cd rollcall && bash ../settings.sh' 2>&1")
        host.run(f"{AS_JOE} bash units.sh 2>&1")
        host.power_off()
        host.power_on()

        host.run(f"{AS_JOE} sh -c '{UNTIL_REGISTERED}'")
        for unit in ("rollcall@registry", "rollcall@agent"):
            assert host.run(f"{AS_JOE} systemctl --user is-active {unit}") == "active\n"
            host.run(f"{AS_JOE} systemctl --user reload {unit}")


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
        "PIP_NO_COMPILE": "1",
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
