from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import OPS, InProcessRegistry

AGENT_SECRET = "a-secret-of-the-operators-alone"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return the CA of the hosts."""
    return Authority(tmp_path / "ca")


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """Return the file with the secret from which keys of agents are derived."""
    file = tmp_path / "agent-secret"
    file.touch(mode=0o600)
    file.write_text(f"{AGENT_SECRET}\n")
    return file


@pytest.fixture
def trusting(
    rollcall: Rollcall, registry: InProcessRegistry, authority: Authority, secret_file: Path
) -> Rollcall:
    """Return the command, with a context that names the CA of the hosts and derives their keys.

    0.0.0.0 leads to the registry, too, and is no loopback address: those of agents have to be
    allowed one by one.
    """
    rollcall.environment["ROLLCALL_KEY"] = OPS
    rollcall.use(
        registry=f"http://0.0.0.0:{registry.address[1]}",
        ca=str(authority.ca),
        agent_secret_file=str(secret_file),
        allow_plain=["0.0.0.0", "127.0.0.1"],
    )
    return rollcall
