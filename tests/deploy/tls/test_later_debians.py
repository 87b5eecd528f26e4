"""TLS with client certificates in trees of later Debians, whose Python is stricter with CAs."""

import shutil
from pathlib import Path

import pytest

from tests.support.e2e.fleet.fleet_folder import make, make_old_ca
from tests.support.e2e.package_host import debian_tree, run_in_tree
from tests.support.e2e.packages import Packages
from tests.support.pages import TOP
from tests.support.requirements import need_root

REGISTRY, HOST = "registry.test", "web-1.test"
MACHINES = (
    *(f"registry={REGISTRY}", f"{HOST}={HOST}"),
    *("secret=node-secret", "agent-secret=ops"),
)
REGISTRY_YML = """\
listen: 127.0.0.1:7655
tls: {certificate: tls.crt, key: tls.key, client_ca: ca.crt}
keys: [{name: ops, file: ops, allow: [read, write]}]
node_secret: [{file: node-secret}]
store: sqlite:///../registry.db
"""
AGENT_YML = f"""\
listen: 127.0.0.1:7656
tls: {{certificate: tls.crt, key: tls.key}}
keys: [{{name: ops, file: ops, allow: [read, write]}}]
node: {{hostname: {HOST}}}
heartbeat_seconds: 1
registries:
  - url: https://{REGISTRY}:7655
    key_file: host.key
    ca: ca.crt
    certificate: tls.crt
    certificate_key: tls.key
store: sqlite:///../agent.db
"""
SCRIPT = f"""\
dpkg --install /package.deb
python3 --version
echo 127.0.0.1 {REGISTRY} >>/etc/hosts
for fleet in /fleet-new /fleet-old; do
  cd $fleet
  export ROLLCALL_CONFIG=$fleet/contexts.yml
  rollcall-registry --config registry/registry.yml node-key {HOST} >{HOST}/host.key
  rollcall-registry --config registry/registry.yml & registry=$!
  rollcall-agent --config {HOST}/agent.yml & agent=$!
  for _ in $(seq 100); do
    rollcall-agent --config {HOST}/agent.yml status >status.txt 2>&1 && break
    sleep 0.3
  done
  cat status.txt
  rollcall login https://{REGISTRY}:7655 --key-file registry/ops \\
    --ca ca.crt --certificate operator/tls.crt --certificate-key operator/tls.key
  echo "$fleet lists $(rollcall nodes -o name)"
  ROLLCALL_URL=https://{REGISTRY}:7655 ROLLCALL_CLIENT_CERTIFICATE=operator/tls.crt \\
    ROLLCALL_CLIENT_KEY=operator/tls.key /opt/rollcall/venv/bin/python /healthcheck
  if rollcall login https://{REGISTRY}:7655 --key-file registry/ops --ca ca.crt; then exit 1; fi
  kill $agent && wait $agent
  kill $registry && wait $registry
done
"""


def fleet(folder: Path) -> None:
    """Make the certificates and keys of a registry and a host, and their settings."""
    made = make(folder, *MACHINES)
    assert made.returncode == 0, made.stderr
    (folder / "registry/registry.yml").write_text(REGISTRY_YML)
    (folder / HOST / "agent.yml").write_text(AGENT_YML)


@pytest.mark.release("further trees of Debian")
@pytest.mark.long(1)
@pytest.mark.real("dpkg-deb", "mmdebstrap", "unshare", "ip", "openssl")
@pytest.mark.parametrize("release", ["trixie", "forky"])
def test_a_host_registers_and_an_operator_logs_in_with_certificates_of_either_kind_of_ca(
    packages: Packages, tmp_path: Path, release: str
) -> None:
    need_root()
    tree = debian_tree(release, tmp_path / "tree", packages.present)
    shutil.copy(TOP / "deploy/container/healthcheck.py", tree / "healthcheck")
    fleet(tree / "fleet-new")
    make_old_ca(tree / "fleet-old")
    fleet(tree / "fleet-old")

    status, said = run_in_tree(tree, SCRIPT)

    assert status == 0, said
    for kind in ("new", "old"):
        assert f"/fleet-{kind} lists {HOST}\n" in said
