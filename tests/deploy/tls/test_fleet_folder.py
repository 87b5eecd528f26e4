"""The folder of a fleet on the control node: what the script of the role makes, and rejects."""

import subprocess
from itertools import product
from pathlib import Path

import pytest

from cli.reach.contexts import derived_agent_key
from tests.support.e2e.fleet.fleet_folder import OLD_CA, make
from tests.support.pages import Page

OPS = "agent-secret=ops"
MACHINES = ("registry=registry.test", "web-1=web-1.test", OPS, "secret=node-secret")

pytestmark = pytest.mark.real("openssl")


def content(folder: Path) -> dict[str, bytes]:
    """Return all files by their paths."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def verified(certificate: Path, ca: Path, *options: str) -> str:
    """Return what openssl says of a certificate for servers and one for clients."""
    said = ""
    for purpose in ("sslserver", "sslclient"):
        command = ["openssl", "verify", *options, "-purpose", purpose, "-CAfile", ca, certificate]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said += done.stdout + done.stderr
    return said


def shell(script: str, folder: Path) -> None:
    """Run a script there."""
    subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, check=True)


CREATE_CA = Page("docs/rollout.md").script(only=["2. Create a CA"])
OLD = f"""\
{OLD_CA}
mkdir web-1
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=web-1.test \\
  -keyout web-1/tls.key -out web-1/tls.csr
printf 'subjectAltName=DNS:web-1.test\\nextendedKeyUsage=serverAuth,clientAuth\\n' >web-1/tls.ext
openssl x509 -req -in web-1/tls.csr -CA ca.crt -CAkey ca.key -days 90 -extfile web-1/tls.ext \\
  -out web-1/tls.crt
"""


def test_each_certificate_is_good_by_the_strict_rules_of_x509(tmp_path: Path) -> None:
    make(tmp_path, *MACHINES, f"web-2=web-2.{'a' * 63}.test")

    for machine in ("registry", "web-1", "web-2", "operator", "prometheus"):
        certificate, ca = tmp_path / machine / "tls.crt", tmp_path / machine / "ca.crt"
        assert verified(certificate, ca, "-x509_strict") == f"{certificate}: OK\n" * 2
    shown = ["openssl", "x509", "-noout", "-text", "-in", str(tmp_path / "ca.crt")]
    text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    for extension in ("Basic Constraints: critical", "Key Usage: critical"):
        assert text.count(extension) == 1
    for extension in ("Subject Key Identifier", "Authority Key Identifier"):
        assert text.count(extension) == 1


def test_the_certificates_of_the_page_are_good_by_the_strict_rules_of_x509(tmp_path: Path) -> None:
    shell(f"{CREATE_CA}\nmkdir web-1\ncertificate web-1 web-1.test", tmp_path)

    certificate = tmp_path / "web-1/tls.crt"
    strict = verified(certificate, tmp_path / "ca.crt", "-x509_strict")
    assert strict == f"{certificate}: OK\n" * 2


def test_a_ca_without_key_usage_stays_until_it_is_replaced_without_a_gap(tmp_path: Path) -> None:
    shell(OLD, tmp_path)
    certificate, ca = tmp_path / "web-1/tls.crt", tmp_path / "ca.crt"
    before, old = certificate.read_bytes(), ca.read_bytes()
    assert make(tmp_path, *MACHINES).returncode == 0
    assert (certificate.read_bytes(), ca.read_bytes()) == (before, old)
    assert "key usage" in verified(certificate, ca, "-x509_strict")

    shell(f"mv ca.crt old.crt\n{CREATE_CA}\ncat old.crt >>ca.crt", tmp_path)
    assert make(tmp_path, *MACHINES).returncode == 0
    assert certificate.read_bytes() == before
    assert verified(certificate, tmp_path / "web-1/ca.crt") == f"{certificate}: OK\n" * 2

    assert make(tmp_path, *MACHINES, days=91).returncode == 0
    ca.write_bytes(ca.read_bytes().removesuffix(old))
    assert verified(certificate, ca, "-x509_strict") == f"{certificate}: OK\n" * 2


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = make(tmp_path, *MACHINES)
    assert first.returncode == 0, first.stderr
    made = content(tmp_path)
    assert {"ca.crt", "registry/node-secret", "web-1/tls.crt", "operator/header"} <= made.keys()
    assert not [path for path in made if path.endswith(".new")]

    second = make(tmp_path, *MACHINES)
    assert (second.returncode, second.stdout) == (0, "")
    assert content(tmp_path) == made


def test_the_key_of_each_agent_is_what_the_command_derives_from_the_operators_secret(
    tmp_path: Path,
) -> None:
    make(tmp_path, *MACHINES, "web-2=WEB-2.test", "agent-secret=viewers")

    for name, folder in product(("ops", "viewers"), ("web-1", "web-2")):
        secret = tmp_path / f"operator/agent-secret-{name}"
        key = (tmp_path / folder / name).read_text()
        assert key == derived_agent_key(str(secret), f"{folder}.test") + "\n"
        held = [path for path, text in content(tmp_path).items() if secret.read_bytes() in text]
        assert held == [f"operator/agent-secret-{name}"]


def test_a_secret_of_agents_is_replaced_by_one_beside_it_and_by_no_other(tmp_path: Path) -> None:
    make(tmp_path, *MACHINES)
    before = content(tmp_path)
    others = [each for each in MACHINES if each != OPS]

    mistaken = make(tmp_path, *others, "agent-secret=opps")
    assert mistaken.returncode == 1
    assert "that rollcall_agent_secrets does not name" in mistaken.stderr
    assert content(tmp_path) == before
    both = make(tmp_path, *MACHINES, "agent-secret=ops-2")
    made = [f"made {path}" for path in ("operator/agent-secret-ops-2", "web-1/ops-2")]
    assert (both.returncode, both.stdout.splitlines()) == (0, made)
    after = make(tmp_path, *others, "agent-secret=ops-2")
    assert (after.returncode, after.stdout) == (0, "")


@pytest.mark.parametrize("name", ["", "tls.key", "Ops", "a b", "-x", "prometheus", "../ca"])
def test_a_name_of_a_secret_of_agents_that_cannot_be_a_files_is_rejected(
    tmp_path: Path, name: str
) -> None:
    done = make(tmp_path, *MACHINES, f"agent-secret={name}")

    assert done.returncode == 1
    assert f"rollcall_agent_secrets: the name '{name}' must be of" in done.stderr
    assert not content(tmp_path)


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
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator/agent-secret-ops.new").write_text("half")

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
def test_a_secret_that_would_replace_something_is_rejected(
    tmp_path: Path, secret: str, message: str
) -> None:
    make(tmp_path, *MACHINES)
    before = content(tmp_path)

    rejected = make(tmp_path, *MACHINES[:-1], f"secret={secret}")
    assert rejected.returncode == 1
    assert message in rejected.stderr
    assert content(tmp_path) == before
