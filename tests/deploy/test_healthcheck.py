"""The health check of the images, against daemons of any settings."""

import shutil
from pathlib import Path

import pytest

from deploy.container.healthcheck import main
from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, TlsOptions

pytestmark = pytest.mark.real


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder with the settings of a container."""
    made = tmp_path / "rollcall"
    made.mkdir()
    return made


def check(daemon: Daemon, name: str, folder: Path) -> int:
    """Check the health of a daemon as its container would."""
    shutil.copy(daemon.config_path, folder / f"{name}.yml")
    return main(name, folder)


def test_a_registry_is_healthy_until_it_ends(
    daemons: Daemons, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = daemons.registry()

    assert check(registry, "registry", folder) == 0
    assert capsys.readouterr().out == '{"message":"ok"}\n'
    registry.terminate()
    assert check(registry, "registry", folder) == 1
    assert "Connection refused" in capsys.readouterr().out


def test_an_agent_without_an_engine_is_unhealthy(
    daemons: Daemons, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(daemons.agent(), "agent", folder) == 1
    assert "engine" in capsys.readouterr().out


@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_a_registry_with_tls_is_asked_with_its_own_certificate(
    daemons: Daemons, folder: Path, *, asks_for_certificates: bool
) -> None:
    authority = Authority(folder / "certificates")
    own, operator = authority.issue("127.0.0.1"), authority.issue("operator")
    tls = {"certificate": str(own.certificate), "key": str(own.key)}
    if asks_for_certificates:
        tls["client_ca"] = str(authority.ca)
    trust: TlsOptions = (str(authority.ca), (str(operator.certificate), str(operator.key)))

    assert check(daemons.registry(tls=tls, trust=trust), "registry", folder) == 0


def test_settings_with_a_mistake_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "agent.yml").write_text("listen: nowhere\n")

    assert main("agent", folder) == 1
    assert "agent.yml: `listen`: `nowhere` is no address" in capsys.readouterr().out
