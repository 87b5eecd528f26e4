"""Several registries on one host, as the page about scaling sets them up, with real units."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.e2e.make_install import make_install
from tests.support.e2e.systemd_host import SystemdHost, booted_host, systemd_image
from tests.support.pages import Page
from tests.support.requirements import need_root

SECTION = "Several registries on one host"
SOON_SECONDS = 30.0
UNITS = ("rollcall-registry@1", "rollcall-registry@2")
SERVER = """
listen: 127.0.0.1:4222
http: 127.0.0.1:8222
jetstream { store_dir: /var/lib/nats, sync_interval: always }
"""
# There is no curl.
CURL = """#!/usr/bin/python3
import sys
from pathlib import Path
from urllib.request import Request, urlopen

name, _, value = Path(sys.argv[2].removeprefix("@")).read_text().strip().partition(": ")
print(urlopen(Request(sys.argv[3], headers={name: value}), timeout=10).read().decode())
"""
ASK = "curl -H @ops.header http://127.0.0.1:7655/nodes"


@pytest.fixture
def host(docker_client: docker.APIClient, destdir: Path, tmp_path: Path) -> Iterator[SystemdHost]:
    """Yield a host after ``make install``, on which a NATS server runs."""
    need_root()
    files = tmp_path / "files"
    (files / "usr/local/bin").mkdir(parents=True)
    shutil.copy(Path(sys.executable).with_name("nats-server"), files / "usr/local/bin")
    (files / "usr/local/bin/curl").write_text(CURL)
    (files / "usr/local/bin/curl").chmod(0o755)
    (files / "etc").mkdir()
    (files / "etc/nats.conf").write_text(SERVER)
    for folder in (files, *files.glob("**/")):
        folder.chmod(0o755)
    with systemd_image(docker_client) as image, booted_host(docker_client, image) as booted:
        make_install(booted, destdir)
        booted.put(files)
        booted.run("systemd-run --unit nats /usr/local/bin/nats-server -c /etc/nats.conf")
        yield booted


@pytest.mark.real("make", "mmdebstrap")
@pytest.mark.page("docs/scaling.md")
def test_each_command_works_and_one_of_two_registries_can_be_stopped(
    page: Page, host: SystemdHost, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.mkdir(mode=0o755)
    (script / "page.sh").write_text(page.script(only=[SECTION]))
    host.put(script)

    host.run("bash /page.sh 2>&1")

    assert (
        host.run("grep -c ^process_cpu_seconds_total metrics-1.txt metrics-2.txt").count(":1") == 2
    )
    for stopped in UNITS:
        host.run(f"systemctl restart {stopped}")  # it has ended, and is ready, when this returns
        assert [host.state(unit) for unit in UNITS] == ["active", "active"]
        host.run(f"systemctl stop {stopped}; for _ in $(seq 8); do {ASK} || exit 1; done")
        host.run(f"systemctl start {stopped}")
        until(lambda: host.try_to(ASK)[0] == 0, "an answer", within=SOON_SECONDS)
