"""Commands that look up names of NATS servers at a DNS server that never answers."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.requirements import need_root
from tests.support.run.release import some_of

pytestmark = pytest.mark.real("unshare")

ADDRESS = "127.0.53.53"
# To look up one name takes minutes.
RESOLVER = f"nameserver {ADDRESS}\noptions timeout:30 attempts:5\n"
STORE = "nats://nats.example:4222/rollcall"
SETTINGS = f"""
store: {STORE}
nats: {{accept_loss: true}}
keys: [{{name: ops, value: 0123456789abcdef, allow: [read, write]}}]
"""
WITH_RESOLVER = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


@pytest.fixture
def silent_dns() -> Iterator[None]:
    """Run a DNS server that receives questions and answers none."""
    need_root()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((ADDRESS, 53))
        yield


@pytest.mark.usefixtures("silent_dns")
@pytest.mark.parametrize(
    "arguments",
    some_of(
        [
            "check",
            "backup FOLDER/backup",
            "delete a",
            f"copy {STORE} sqlite:///FOLDER/r.db",
        ],
        *("check", "delete a"),
        reason="further commands, each of which waits",
    ),
    ids=lambda arguments: arguments.split()[0],
)
def test_a_command_ends_soon_and_says_why(tmp_path: Path, arguments: str) -> None:
    settings, resolver = tmp_path / "registry.yml", tmp_path / "resolv.conf"
    settings.write_text(SETTINGS)
    resolver.write_text(RESOLVER)
    program = str(Path(sys.executable).with_name("rollcall-registry"))
    command = [each.replace("FOLDER", str(tmp_path)) for each in arguments.split()]
    isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_RESOLVER]

    done = subprocess.run(
        [*isolated, str(resolver), program, "--config", str(settings), *command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert "nats.example:4222: no answer within 3 s" in done.stderr
