"""The health check of the images, against daemons of any settings."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from deploy.container.healthcheck import main
from tests.support.certificates import Authority
from tests.support.daemons import Daemon, Daemons, TlsOptions

pytestmark = pytest.mark.real


def check(daemon: Daemon) -> int:
    """Check the health of a daemon as its container would."""
    return main({"ROLLCALL_URL": daemon.base_url})


def test_a_registry_is_healthy_until_it_ends(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = daemons.registry()

    assert check(registry) == 0
    assert capsys.readouterr().out == '{"message":"ok"}\n'
    registry.terminate()
    assert check(registry) == 1
    assert "Connection refused" in capsys.readouterr().out


def test_an_agent_without_an_engine_is_unhealthy(
    daemons: Daemons, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(daemons.agent()) == 1
    assert "engine" in capsys.readouterr().out


def test_a_mistake_in_the_settings_of_a_running_registry_does_not_count(daemons: Daemons) -> None:
    registry = daemons.registry()
    registry.config_path.write_text("listen: nowhere\n")

    assert check(registry) == 0


def test_a_registry_with_tls_is_healthy(daemons: Daemons, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.issue("127.0.0.1")
    tls = {"certificate": str(own.certificate), "key": str(own.key)}
    registry = daemons.registry(tls=tls, trust=(str(authority.ca), None))

    assert check(registry) == 0
    registry.terminate()
    assert check(registry) == 1


@pytest.mark.parametrize("lax", [False, True])
def test_a_daemon_that_asks_for_certificates_gets_one_from_the_check(
    daemons: Daemons, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, lax: bool
) -> None:
    authority = Authority(tmp_path / "certificates", lax=lax)
    own, operator = authority.issue("127.0.0.1"), authority.issue("operator")
    tls = {
        "certificate": str(own.certificate),
        "key": str(own.key),
        "client_ca": str(authority.ca),
    }
    trust: TlsOptions = (str(authority.ca), (str(operator.certificate), str(operator.key)))
    registry = daemons.registry(tls=tls, trust=trust)
    agent = daemons.agent(tls=tls, trust=trust)  # without an engine it is unhealthy
    files = {
        "ROLLCALL_CLIENT_CERTIFICATE": str(operator.certificate),
        "ROLLCALL_CLIENT_KEY": str(operator.key),
    }

    assert main({"ROLLCALL_URL": registry.base_url, **files}) == 0
    assert capsys.readouterr().out == '{"message":"ok"}\n'
    assert main({"ROLLCALL_URL": agent.base_url, **files}) == 1
    assert "engine" in capsys.readouterr().out
    assert check(registry) == 1
    assert "ROLLCALL_CLIENT_CERTIFICATE" in capsys.readouterr().out
    missing = {**files, "ROLLCALL_CLIENT_CERTIFICATE": "/nonexistent"}
    assert main({"ROLLCALL_URL": registry.base_url, **missing}) == 1


def test_a_registry_without_tls_that_is_asked_with_it_is_unhealthy(daemons: Daemons) -> None:
    registry = daemons.registry()

    assert main({"ROLLCALL_URL": registry.base_url.replace("http:", "https:")}) == 1


def test_a_registry_with_tls_that_is_asked_without_it_is_unhealthy(
    daemons: Daemons, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.issue("127.0.0.1")
    tls = {"certificate": str(own.certificate), "key": str(own.key)}
    registry = daemons.registry(tls=tls, trust=(str(authority.ca), None))

    assert main({"ROLLCALL_URL": registry.base_url.replace("https:", "http:")}) == 1


def test_another_program_that_answers_at_the_address_is_not_the_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "healthz").write_text('{"message":"ok"}')
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        status = main({"ROLLCALL_URL": f"http://127.0.0.1:{server.server_port}"})
        server.shutdown()
    assert status == 1
    assert "not a daemon of Rollcall" in capsys.readouterr().out


@pytest.mark.parametrize("environment", [{}, {"ROLLCALL_URL": "http://127.0.0.1:none"}])
def test_without_an_address_it_is_unhealthy(environment: dict[str, str]) -> None:
    assert main(environment) == 1
