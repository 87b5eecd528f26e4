"""Both Swagger documents tell the truth: requests and answers are as they say.

Schemathesis makes requests from a document. Those that are as it says must be accepted, all others
rejected, and each answer must be announced.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.daemons import Daemon, Daemons
from tests.support.run.release import some_of

pytestmark = [pytest.mark.long(2)]
EXAMPLES = 3  # for each operation, in each phase
PHASES = some_of(
    ["examples,coverage", "fuzzing,stateful"],
    "examples,coverage",
    reason="random requests, as the fuzzer of this repository sends them too",
)
REGISTRY = """
[[operations]]
include-operation-id = "listNodes"
# A stream does not end, and schemathesis expects a content type of a 304. The schema is that of
# nodes without their addresses.
[operations.parameters]
"query.watch" = "false"
"query.address" = "false"
"header.If-None-Match" = '"another"'

[[operations]]
include-operation-id = "getNode"
parameters = {"query.address" = "false"}

[[operations]]
include-operation-id-regex = "listServices|discoverTargets"
parameters = {"header.If-None-Match" = '"another"'}

[[operations]]
include-operation-id = "reportNode"
# The hostname in the body must be the one in the path.
checks.positive_data_acceptance.enabled = false
"""
AGENT = """
[checks]
# A made-up image is 502 where no server of images can be reached.
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "502"]
negative_data_rejection.expected-statuses = ["400", "404", "409", "413", "5xx"]

[[operations]]
include-operation-id = "getLogs"
# A stream does not end.
parameters = {"query.follow" = "false"}

[[operations]]
include-operation-id-regex = "createApp|updateApp"
# What the host has limits cpu and memory, and some rules are between fields.
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.real
@pytest.mark.parametrize("phases", PHASES)
def test_the_registry_answers_as_its_document_says(
    daemons: Daemons, tmp_path: Path, phases: str
) -> None:
    registry = daemons.registry()
    body = {"labels": ["prometheus:node", "service:web"], "kv": {"rack": "r12"}}
    assert registry.ask("POST", "/nodes/web-1.example.com", json=body).ok
    (tmp_path / "schemathesis.toml").write_text(REGISTRY)
    _drive(registry, tmp_path, phases)


@pytest.mark.real("dockerd", "unshare", "ip")
@pytest.mark.parametrize("phases", PHASES)
def test_the_agent_answers_as_its_document_says(
    daemons: Daemons, tmp_path: Path, phases: str
) -> None:
    # In a network of its own, where made-up images are asked for in vain.
    with Dockerd() as engine:
        engine.start()
        engine.build()
        agent = daemons.agent(engine=engine.url)
        app = {"name": "web", "image": IMAGE}
        assert agent.ask("POST", "/v1/apps", json=app).status_code == 201
        (tmp_path / "schemathesis.toml").write_text(AGENT)
        _drive(agent, tmp_path, phases)


def _drive(daemon: Daemon, folder: Path, phases: str) -> None:
    """Run schemathesis with the daemon's document, over all its operations."""
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "run"),
            *("--header", f"Authorization: Bearer {daemon.key}"),
            *("--max-examples", str(EXAMPLES)),
            *("--exclude-operation-id", "followEvents"),  # it does not end
            *("--phases", phases),
            *("--generation-deterministic", "--no-color", "--request-timeout", "60"),
            "--suppress-health-check=too_slow",  # how fast this machine is fails no test
            f"{daemon.base_url}/swagger.json",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"
    assert "Traceback" not in daemon.log()
