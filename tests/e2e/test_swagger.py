"""Both Swagger documents tell the truth: a program that reads them finds no answer unannounced."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.daemons import Daemon, Daemons

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
pytestmark = pytest.mark.long(1)
EXAMPLES = 10  # for each operation, in each phase
# A made-up image is 502 where no server of images can be reached.
BAD_GATEWAY_EXPECTED = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "502"]
"""


@pytest.mark.real
def test_the_registry_answers_as_its_document_says(daemons: Daemons, tmp_path: Path) -> None:
    registry = daemons.registry()
    body = {"labels": ["prometheus:node", "service:web"], "kv": {"rack": "r12"}}
    assert registry.ask("POST", "/nodes/web-1.example.com", json=body).ok
    _drive(registry, tmp_path)


@pytest.mark.real("dockerd", "unshare", "ip")
def test_the_agent_answers_as_its_document_says(daemons: Daemons, tmp_path: Path) -> None:
    # In a network of its own, where made-up images are asked for in vain.
    with Dockerd() as engine:
        engine.start()
        engine.build()
        agent = daemons.agent(engine=engine.url)
        app = {"name": "web", "image": IMAGE}
        assert agent.ask("POST", "/v1/apps", json=app).status_code == 201
        (tmp_path / "schemathesis.toml").write_text(BAD_GATEWAY_EXPECTED)
        _drive(agent, tmp_path)


def _drive(daemon: Daemon, folder: Path) -> None:
    """Run schemathesis with the daemon's document, over all its operations."""
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "run"),
            *("--header", f"Authorization: Bearer {daemon.key}"),
            *("--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES)),
            *("--exclude-operation-id", "followEvents"),  # it does not end
            *("--phases", "examples,coverage,fuzzing,stateful"),
            *("--generation-deterministic", "--no-color", "--request-timeout", "60"),
            f"{daemon.base_url}/swagger.json",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"
    assert "Traceback" not in daemon.log()
