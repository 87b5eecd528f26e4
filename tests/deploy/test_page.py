"""The pages about packages and about installation, on a Debian 12 host."""

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
MAKE = """
cd /packages
make() { [ "$*" = deb ] && mkdir dist && mv rollcall_*.deb dist; }
"""
NOT_ENABLED = "fails systemctl is-enabled rollcall-agent rollcall-registry"
pytestmark = [
    pytest.mark.long(2),
    pytest.mark.real("dpkg-deb", "mmdebstrap"),
]


@pytest.mark.page("docs/packages.md")
def test_each_command_works_in_its_order(
    docker_client: docker.APIClient, engine_url: str, packages: Packages, tmp_path: Path
) -> None:
    script = Page("docs/packages.md").script(checks=CHECKS, before=FUNCTIONS)
    assert NODE_KEY in script
    script = script.replace(
        NODE_KEY, "rollcall-registry node-key $(hostname) > /etc/rollcall/node.key"
    )
    script = script.replace("registry.example.com", "127.0.0.1")

    output = run_on_a_host(script, docker_client, engine_url, packages, tmp_path)

    assert "    taken " in output
    assert ": taken out" in output


@pytest.mark.page("docs/install.md")
def test_the_package_is_installed_as_the_page_about_installation_says(
    docker_client: docker.APIClient, engine_url: str, packages: Packages, tmp_path: Path
) -> None:
    script = Page("docs/install.md").script(
        only=["Debian package"], before=MAKE, checks={"Debian package": [NOT_ENABLED]}
    )

    output = run_on_a_host(
        f"{script}\nrollcall --version", docker_client, engine_url, packages, tmp_path
    )

    assert output.splitlines()[-1].startswith("rollcall ")


def run_on_a_host(
    script: str,
    client: docker.APIClient,
    engine_url: str,
    packages: Packages,
    folder: Path,
) -> str:
    """Run a script on a host that has the files of packages; return what it wrote."""
    need_root()
    (folder / "page.sh").write_text(script)
    with (
        systemd_image(client) as image,
        package_host(
            client,
            image,
            packages,
            folder=folder,
            engine_socket=engine_url.removeprefix("unix://"),
        ) as host,
    ):
        return host.run("bash /page.sh 2>&1")
