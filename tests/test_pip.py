"""`pip install .` on each Python of the Debian systems, into an environment of its own."""

from pathlib import Path

import pytest

from deploy.deb.environment import copy_of_sources
from tests.support.e2e.package_host import RELEASES, python_tree, run_in_tree
from tests.support.e2e.packages import VERSION
from tests.support.pages import TOP
from tests.support.requirements import need_root

SCRIPT = """\
export PATH=/environment/bin:$PATH HOME=/root
python3 -m venv /environment
pip install --quiet --no-index --find-links /wheels /source
cd /root
python --version
rollcall --version
echo ops-key-0123456789abcdef >ops.key
echo node-secret-0123456789abcdef >node.secret
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
rollcall login http://127.0.0.1:7655 --key-file ops.key
rollcall nodes
kill $agent && wait $agent
kill $registry && wait $registry
"""


@pytest.mark.release("three Pythons, each in a Debian tree of its own")
@pytest.mark.long(1)
@pytest.mark.real("mmdebstrap", "unshare", "ip")
@pytest.mark.parametrize("python", RELEASES)
def test_pip_installs_daemons_and_command_that_run(python: str, tmp_path: Path) -> None:
    need_root()
    tree = tmp_path / "tree"
    python_tree(python, tree, "requirements-build.txt", "requirements.txt")
    copy_of_sources(TOP, tree / "source")

    status, printed = run_in_tree(tree, SCRIPT)

    assert status == 0, printed
    assert f"Python {python}." in printed
    assert f"rollcall {VERSION}\n" in printed
    assert "web-1.example.com  fresh" in printed, printed
    assert "Warning" not in printed
