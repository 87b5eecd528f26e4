"""The page about packages, on a Debian 12 host."""

from pathlib import Path

import docker
import pytest

from tests.support.e2e.package_host import package_host
from tests.support.e2e.packages import NEXT_VERSION, Packages
from tests.support.e2e.systemd_host import systemd_image
from tests.support.pages import Page
from tests.support.requirements import need_root

# One host is all of those that the page speaks of.
FUNCTIONS = f"""
cd /packages
mv following.deb following
make() {{ [ "$*" = deb ]; }}
registered() {{ until rollcall-agent status; do sleep 1; done; }}
pids() {{
  for unit in rollcall-agent rollcall-registry; do
    systemctl show --property MainPID --value "$unit"
  done
}}
new_version() {{  # as if it was copied here
  rm rollcall_*.deb
  mv following "rollcall_{NEXT_VERSION}_$(dpkg --print-architecture).deb"
}}
none_of() {{ fails grep -xF "$1"; }}  # LINES
"""
UPGRADED = f"""
systemctl is-active rollcall-agent
systemctl is-active rollcall-registry
registered
rollcall-agent --version | grep -x 'rollcall-agent {NEXT_VERSION}'
pids | none_of "$before"
"""
CHECKS = {
    "Install": [
        "",
        "systemctl is-active rollcall-registry",
        "systemctl is-active rollcall-agent; registered; before=$(pids); new_version",
    ],
    "Upgrade": [UPGRADED],
    "Remove": [
        "fails systemctl is-active rollcall-agent; ls /var/lib/rollcall-agent/agent.db",
        "gone /opt/rollcall /var/lib/rollcall-agent /var/lib/rollcall-registry /etc/rollcall",
    ],
}
NODE_KEY = "rollcall-registry node-key web-1.example.com"


@pytest.mark.long(2)
@pytest.mark.timeout(900)
@pytest.mark.real("dpkg-deb", "mmdebstrap")
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
            packages,
            folder=tmp_path,
            engine_socket=engine_url.removeprefix("unix://"),
        ) as host,
    ):
        output = host.run("bash /page.sh 2>&1")

    assert "    taken " in output
    assert ": taken out" in output
