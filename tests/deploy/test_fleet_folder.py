"""The folder of a fleet on the control node: what the script of the role makes, and refuses."""

import subprocess
from pathlib import Path

import pytest

from tests.support.pages import TOP

SCRIPT = TOP / "deploy/ansible/roles/rollcall/files/fleet_folder.sh"
MACHINES = ("registry=registry.test", "web-1=web-1.test", "secret=node-secret")

pytestmark = pytest.mark.real("openssl")


def make(folder: Path, *machines: str, days: int = 30) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    command = ["sh", str(SCRIPT), str(folder), str(days), *machines]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def content(folder: Path) -> dict[str, bytes]:
    """Return all files by their paths."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = make(tmp_path, *MACHINES)
    assert first.returncode == 0, first.stderr
    made = content(tmp_path)
    assert {"ca.crt", "registry/node-secret", "web-1/tls.crt", "operator/header"} <= made.keys()
    assert not [path for path in made if path.endswith(".new")]

    second = make(tmp_path, *MACHINES)
    assert (second.returncode, second.stdout) == (0, "")
    assert content(tmp_path) == made


def test_a_certificate_that_ends_soon_is_made_anew_and_its_key_with_it(tmp_path: Path) -> None:
    make(tmp_path, *MACHINES)
    before = content(tmp_path)

    renewed = make(tmp_path, *MACHINES, days=91)  # they last 90 days
    assert renewed.returncode == 0, renewed.stderr
    after = content(tmp_path)
    changed = {path for path in after if after[path] != before.get(path)}
    assert {"registry/tls.crt", "registry/tls.key", "web-1/tls.crt", "web-1/tls.key"} <= changed
    assert not changed & {"ca.crt", "ca.key", "registry/ops", "registry/node-secret", "web-1/ops"}


def test_a_run_that_was_cut_off_does_not_hinder_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry/node-secret.new").write_text("half")
    (tmp_path / "registry/ops.new").write_text("half")

    done = make(tmp_path, *MACHINES)
    assert done.returncode == 0, done.stderr
    made = content(tmp_path)
    assert len(made["registry/node-secret"]) == len(made["registry/ops"]) == 65
    assert not [path for path in made if path.endswith(".new")]


def test_a_second_secret_is_made_beside_the_first_one(tmp_path: Path) -> None:
    make(tmp_path, *MACHINES)
    before = content(tmp_path)

    done = make(tmp_path, *MACHINES, "secret=node-secret-2")
    assert done.stdout == "made registry/node-secret-2\n"
    assert content(tmp_path).items() >= before.items()


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("node-secret-2", "has a secret of node keys that rollcall_node_secrets does not name"),
        ("ops", "the name of ops must begin with node-secret"),
        ("other", "the name of other must begin with node-secret"),
        ("node-secret.new", "the name of node-secret.new must not end in .new"),
    ],
)
def test_a_secret_that_would_replace_something_is_refused(
    tmp_path: Path, secret: str, message: str
) -> None:
    make(tmp_path, *MACHINES)
    before = content(tmp_path)

    refused = make(tmp_path, *MACHINES[:-1], f"secret={secret}")
    assert refused.returncode == 1
    assert message in refused.stderr
    assert content(tmp_path) == before
