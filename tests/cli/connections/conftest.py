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
    """Return the command, with a context that names the CA of the hosts."""
    rollcall.environment["ROLLCALL_KEY"] = OPS
    rollcall.use(
        registry=f"http://127.0.0.1:{registry.address[1]}",
        ca=str(authority.ca),
        allow_plain=["127.0.0.1"],
    )
    return rollcall
