"""One agent and one app for the tests of a module."""

import secrets
from collections.abc import Iterator, Mapping

import pytest

from tests.support.browser.agent_page import AppOnAgent
from tests.support.browser.tricks import TRICKS
from tests.support.daemons import Daemons, FreePort

READER = "reader-key-0123456789"
SCRIPT = """
echo begin
echo "$TRICKS"
while sleep 1; do date +tick-%s; done
"""


@pytest.fixture(scope="module")
def app(
    tmp_path_factory: pytest.TempPathFactory,
    free_port: FreePort,
    engine_url: str,
    busybox_image: str,
) -> Iterator[AppOnAgent]:
    """Yield a running app that logs, whose texts are those of an attacker."""
    folder = tmp_path_factory.mktemp("page")
    reader = folder / "reader.key"
    reader.touch(mode=0o600)
    reader.write_text(READER)
    with Daemons(folder=folder / "daemons", free_port=free_port) as daemons:
        ops = {"name": "ops", "file": "ops.key", "allow": ["read", "write"]}
        read = {"name": "reader", "file": str(reader), "allow": ["read"]}
        agent = daemons.agent(engine=engine_url, keys=[ops, read])
        name = f"page-{secrets.token_hex(4)}"
        body: Mapping[str, object] = {
            "name": name,
            "image": busybox_image,
            "pull": "never",
            "stop_seconds": 1,
            "description": "\t".join(TRICKS)[:1000],
            "command": ["sh", "-c", SCRIPT],
            "env": {"TRICKS": "\n".join(TRICKS)},
        }
        answer = agent.ask("POST", "/v1/apps", json=body)
        assert answer.status_code == 201, answer.text
        try:
            for trick in TRICKS:
                agent.ask("POST", f"/v1/apps/{name}/labels", json={"Value": f"trick:{trick}"})
            yield AppOnAgent(agent, name, READER)
        finally:
            agent.ask("DELETE", f"/v1/apps/{name}")
