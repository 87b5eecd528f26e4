"""The page about packages, on a Debian 12 host."""

from pathlib import Path

import docker
import pytest

from tests.support.e2e.package_host import package_host
from tests.support.e2e.packages import Packages
from tests.support.e2e.systemd_host import systemd_image
from tests.support.pages import Page
from tests.support.requirements import need_root

# One host is all of those that the page speaks of.
FUNCTIONS = """
cd /packages
make() { [ "$*" = deb ]; }
registered() { until rollcall-agent status; do sleep 1; done; }
"""
CHECKS = {
    "Install": [
        "",
        "systemctl is-active rollcall-registry",
        "systemctl is-active rollcall-agent; registered",
    ],
    "Upgrade": ["systemctl is-active rollcall-agent rollcall-registry"],
    "Remove": [
        "! systemctl is-active rollcall-agent && ls /var/lib/rollcall-agent/agent.db",
        "! ls -d /opt/rollcall /var/lib/rollcall-agent /var/lib/rollcall-registry /etc/rollcall",
    ],
}
NODE_KEY = "rollcall-registry node-key web-1.example.com"


@pytest.mark.long(2)
@pytest.mark.timeout(900)
@pytest.mark.real("dpkg-deb", "debootstrap")
@pytest.mark.page("docs/packages.md")
def test_each_command_works_in_its_order(
    docker_client: docker.APIClient, engine_url: str, packages: Packages, tmp_path: Path
) -> None:
    need_root()
    script = Page("docs/packages.md").script(checks=CHECKS, before=FUNCTIONS)
    assert NODE_KEY in script
    script = script.replace(
        NODE_KEY, "rollcall-registry node-key $(hostname) > /etc/rollcall/node.key"
    )
    script = script.replace("registry.example.com", "127.0.0.1")
    (tmp_path / "page.sh").write_text(script)

    with (
        systemd_image(docker_client) as image,
        package_host(
            docker_client,
            image,
            Packages(packages.present, packages.present),
            folder=tmp_path,
            engine_socket=engine_url.removeprefix("unix://"),
        ) as host,
    ):
        output = host.run("bash /page.sh 2>&1")

    assert "    taken " in output
    assert ": taken out" in output
