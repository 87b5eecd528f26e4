"""A Debian 12 host, and trees of later Debians, without a network, to install packages on."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

from deploy.deb.wheels import ARCHITECTURES, PIP, platform_options
from dev.debian import debian_root
from dev.processes import with_network
from dev.waiting import until
from tests.support.e2e.packages import TOP, Packages, machine_architecture
from tests.support.e2e.systemd_host import SystemdHost, booted_host

SOON_SECONDS = 30.0
AGENT, REGISTRY = "rollcall-agent", "rollcall-registry"
SETTINGS = "/etc/rollcall"
RELEASES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}  # by their Python
STATE = "/var/lib/rollcall-agent /var/lib/rollcall-registry"
USED_SETTINGS = """\
registry='{url: "http://127.0.0.1:7655", key_file: node.key}'
sed -i "s|^registries: .*|registries: [$registry]|" agent.yml
sed -i 's|^heartbeat_seconds: .*|heartbeat_seconds: 1|' agent.yml
rollcall-registry node-key $(hostname) >node.key
"""
USED = f"""\
{USED_SETTINGS}
systemctl enable --now rollcall-registry rollcall-agent
"""
# There is no curl. The request's body is on standard input.
ASK = """\
import sys
from pathlib import Path
from urllib.request import Request, urlopen

method, url = sys.argv[1:]
file = "agent-ops.key" if ":7656/" in url else "ops.key"
key = Path("/etc/rollcall", file).read_text().strip()
headers = {"Authorization": key, "Content-Type": "application/json"}
data = sys.stdin.buffer.read() or None
with urlopen(Request(url, data, headers, method=method), timeout=60) as response:
    print(response.read().decode())
"""

# What runs in a tree has processes and a loopback of its own.
CHROOT = """\
tree=$0
ip link set lo up
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
exec chroot "$tree" sh -euc "$1"
"""
TREE_PATH = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
ALONE = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private")


class PackageHost:
    """A host without a network: what is installed on it can download nothing."""

    def __init__(self, host: SystemdHost) -> None:
        self.host = host
        self.run = host.run
        self.try_to = host.try_to
        self.state = host.state

    def install(self, package: Path) -> str:
        """Install a package, and return what was said."""
        status, said = self.try_to_install(package)
        assert status == 0, said
        return said

    def try_to_install(self, package: Path) -> tuple[int, str]:
        """Install a package, and return the exit status and what was said.

        Nobody is there to answer whether new settings replace those of the host.
        """
        return self.try_to(f"dpkg --force-confold --install /packages/{package.name}")

    def installed(self) -> str:
        """Return the status and version of the package, such as ``installed 0.2.0-1``."""
        query = "dpkg-query --show --showformat '${db:Status-Status} ${Version}' rollcall"
        return self.try_to(query)[1].strip()

    def damage(self) -> str:
        """Return what dpkg finds half done or changed, but for settings."""
        return self.run("dpkg --audit; dpkg --verify rollcall | grep -v ' c ' || true")

    def use_both(self) -> None:
        """Set what both daemons need, start them, and wait until the host has registered."""
        self.run(f"cd {SETTINGS} && {USED}")
        self.until_listed()

    def until_listed(self) -> None:
        """Wait until the registry lists the host."""
        name = self.run("hostname").strip()

        def listed() -> bool:
            status, nodes = self.try_to_ask("GET", "http://127.0.0.1:7655/nodes")
            return status == 0 and f'"hostname":"{name}"' in nodes

        until(listed, f"{name} is listed", within=SOON_SECONDS)

    def identity(self) -> str:
        """Return the identity of the agent, as the registry lists it."""
        (node,) = self.ask("GET", "http://127.0.0.1:7655/nodes")
        identity: str = node["kv"]["agent.id"]
        return identity

    def ask(self, method: str, url: str, body: Any = None) -> Any:
        """Ask a daemon on the host with its operator's key, and return the JSON it answered."""
        status, answer = self.try_to_ask(method, url, body)
        assert status == 0, answer
        return json.loads(answer)

    def try_to_ask(self, method: str, url: str, body: Any = None) -> tuple[int, str]:
        """Ask a daemon, and return an exit status and what was answered."""
        text = "" if body is None else json.dumps(body)
        return self.try_to(f"printf %s '{text}' | python3 /packages/ask.py {method} {url}")

    def pids(self) -> tuple[int, int]:
        """Return the process ids of both daemons."""
        return self.host.pid(AGENT), self.host.pid(REGISTRY)

    def states(self) -> tuple[str, str]:
        """Return the states of both units."""
        return self.state(AGENT), self.state(REGISTRY)

    def settings(self) -> str:
        """Return sums, modes and owners of settings and keys, but not of what dpkg puts beside."""
        files = "find . -type f ! -name '*.dpkg-*' | sort"
        return self.run(
            f"cd {SETTINGS}; {files} | xargs sha256sum; {files} | xargs stat -c '%n %a %U:%G'"
        )


@contextmanager
def package_host(
    client: docker.APIClient, image: str, packages: Packages, *, folder: Path, engine_socket: str
) -> Iterator[PackageHost]:
    """Boot a host that has the files of packages, but has installed none."""
    there = folder / "packages"
    there.mkdir()
    for each in (packages.present, packages.following):
        shutil.copy(each, there)
    (there / "ask.py").write_text(ASK)
    folder.chmod(0o755)  # it becomes the root folder
    with booted_host(client, image, engine_socket=engine_socket) as host:
        host.put(folder)
        yield PackageHost(host)


def debian_tree(release: str, tree: Path, package: Path) -> Path:
    """Make a tree of a release at a path, with the file of a package as /package.deb."""
    copy_of_root(tree, release, "python3", "systemd")
    shutil.copy(package, tree / "package.deb")
    return tree


def python_tree(python: str, tree: Path, *locks: str) -> None:
    """Make a tree with a Python at a path, and what locks name for it in its folder /wheels."""
    copy_of_root(tree, RELEASES[python], "python3", "python3-venv")
    options = platform_options(python, ARCHITECTURES[machine_architecture()])
    # What has no wheel is downloaded as source, and built in the tree.
    command = [*PIP, "download", "--no-deps", "--no-build-isolation", "--require-hashes"]
    command += [*options, "--dest", str(tree / "wheels")]
    for lock in locks:
        subprocess.run(with_network([*command, "--requirement", str(TOP / lock)]), check=True)


def copy_of_root(tree: Path, release: str, *packages: str) -> None:
    """Make a tree of a release with these packages at a path."""
    # Unlike shutil, cp copies a device such as /dev/zero as a device.
    subprocess.run(["cp", "--archive", debian_root(release, *packages), tree], check=True)


def run_in_tree(tree: Path, script: str) -> tuple[int, str]:
    """Run a script in a tree, with processes and a loopback of its own; return what it said."""
    done = subprocess.run(
        ["unshare", *ALONE, "sh", "-euc", CHROOT, tree, TREE_PATH + script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
