"""`pip install .` on each Python of the Debian systems, into an environment of its own."""

import subprocess
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

from deploy.deb.wheels import ARCHITECTURES, PIP, platform_options
from dev.debian import debian_root
from dev.processes import with_network
from tests.support.e2e.packages import PROJECT, TOP, machine_architecture
from tests.support.requirements import need_root

LOCKS = ("requirements-build.txt", "requirements.txt")
CHROOT = """\
tree=$0
ip link set lo up
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
exec chroot "$tree" sh -euc "$1"
"""
SCRIPT = """\
export PATH=/environment/bin:/usr/bin:/bin HOME=/root
python3 -m venv /environment
pip install --quiet --no-index --find-links /wheels /source
cd /root
python --version
rollcall --version
printf %032d 7 | tr 0-6 a-g >ops.key
printf %032d 8 | tr 0-7 g-n >node.secret
cat >registry.yml <<END
store: sqlite:////root/registry.db
keys: [{name: ops, file: ops.key, allow: [read, write]}]
node_secret: {file: node.secret}
END
cat >agent.yml <<END
store: sqlite:////root/agent.db
keys: [{name: ops, file: ops.key, allow: [read, write]}]
node: {hostname: web-1.example.com, labels: ["service:web"], labels_dir: labels.d}
registries: [{url: "http://127.0.0.1:7655", key_file: web-1.key}]
END
chmod 600 ops.key node.secret
rollcall-registry --config registry.yml node-key web-1.example.com >web-1.key
rollcall-registry --config registry.yml & registry=$!
rollcall-agent --config agent.yml & agent=$!
for _ in $(seq 300); do
  rollcall-agent --config agent.yml status >status.txt 2>&1 && break
  sleep 0.1
done
cat status.txt
rollcall login http://127.0.0.1:7655 --key-file ops.key --allow-plain 127.0.0.1
rollcall nodes
kill $agent && wait $agent
kill $registry && wait $registry
"""


@pytest.mark.long(1)
@pytest.mark.timeout(900)
@pytest.mark.real("mmdebstrap", "unshare", "ip")
@pytest.mark.parametrize(
    ("release", "python"), [("bookworm", "3.11"), ("trixie", "3.13"), ("sid", "3.14")]
)
def test_pip_installs_daemons_and_command_that_run(
    release: str, python: str, tmp_path: Path
) -> None:
    need_root()
    tree = tmp_path / "tree"
    # Unlike shutil, cp copies a device such as /dev/zero as a device.
    root = debian_root(release, "python3", "python3-venv")
    subprocess.run(["cp", "--archive", root, tree], check=True)
    _download(python, tree / "wheels")
    _copy_project(tree / "source")
    alone = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]

    done = subprocess.run(
        ["unshare", *alone, "sh", "-euc", CHROOT, tree, SCRIPT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert f"Python {python}." in done.stdout
    assert "rollcall " in done.stdout
    assert "web-1.example.com  fresh" in done.stdout, printed
    assert "Warning" not in printed


def _download(python: str, folder: Path) -> None:
    options = platform_options(python, ARCHITECTURES[machine_architecture()])
    command = [*PIP, "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += [*options, "--dest", str(folder)]
    for lock in LOCKS:
        subprocess.run(with_network([*command, "--requirement", str(TOP / lock)]), check=True)


def _copy_project(folder: Path) -> None:
    folder.mkdir()
    for name in ("pyproject.toml", "README.md"):
        copy(TOP / name, folder)
    for name in PROJECT:
        copytree(TOP / name, folder / name, ignore=ignore_patterns("__pycache__"))
