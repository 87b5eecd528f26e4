"""The package in trees of later Debians, which have later Pythons, without a network."""

from pathlib import Path

import pytest

from tests.support.e2e.package_host import ASK, USED_SETTINGS, debian_tree, run_in_tree
from tests.support.e2e.packages import Packages
from tests.support.requirements import need_root

MAX_EXPOSURE = 11  # in tenths: `systemd-analyze security` says at most 1.1
SCRIPT = f"""\
dpkg --install /package.deb
python3 --version
systemd-analyze verify rollcall-agent.service rollcall-registry.service rollcall-registry@1.service
for unit in rollcall-agent.service rollcall-registry.service; do
  systemd-analyze security --offline=true --threshold={MAX_EXPOSURE} $unit
done
cd /etc/rollcall
{USED_SETTINGS}
mkdir /var/lib/rollcall-agent /var/lib/rollcall-registry
rollcall-registry & registry=$!
rollcall-agent & agent=$!
for _ in $(seq 300); do
  python3 /ask.py GET http://127.0.0.1:7655/nodes </dev/null >/nodes.txt 2>&1 || true
  grep -q '"hostname"' /nodes.txt && break
  sleep 0.1
done
cat /nodes.txt
python3 /ask.py GET http://127.0.0.1:7656/metrics </dev/null | grep heartbeats_total
find /opt/rollcall -name '*.pyc' -path '*/agent/*' | head -n 1
kill $agent && wait $agent
kill $registry && wait $registry
dpkg --purge rollcall
ls -d /opt/rollcall /etc/rollcall /var/lib/rollcall-agent 2>&1 || true
"""


@pytest.mark.release("further trees of Debian")
@pytest.mark.long(2)
@pytest.mark.real("dpkg-deb", "mmdebstrap", "unshare", "ip")
@pytest.mark.parametrize(("release", "minor"), [("trixie", 13), ("forky", 14)])
def test_both_daemons_are_installed_run_and_are_purged(
    packages: Packages, tmp_path: Path, release: str, minor: int
) -> None:
    need_root()
    tree = debian_tree(release, tmp_path / "tree", packages.present)
    (tree / "ask.py").write_text(ASK)

    status, said = run_in_tree(tree, SCRIPT)

    assert status == 0, said
    assert f"Python 3.{minor}." in said
    assert '"hostname":' in said
    assert "rollcall_agent_heartbeats_total" in said
    assert f".cpython-3{minor}.pyc" in said
    assert said.count("No such file or directory") == 3
