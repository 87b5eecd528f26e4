from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.cli.command import Rollcall
from tests.support.registry.in_process import OPS, InProcessRegistry


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Return the CA of the hosts."""
    return Authority(tmp_path / "ca")


@pytest.fixture
def trusting(rollcall: Rollcall, registry: InProcessRegistry, authority: Authority) -> Rollcall:
    """Return the command, with a context that names the CA of the hosts.

    0.0.0.0 leads to the registry, too, and is no loopback address: those of agents have to be
    allowed one by one.
    """
    rollcall.environment["ROLLCALL_KEY"] = OPS
    rollcall.use(
        registry=f"http://0.0.0.0:{registry.address[1]}",
        ca=str(authority.ca),
        allow_plain=["0.0.0.0", "127.0.0.1"],
    )
    return rollcall
