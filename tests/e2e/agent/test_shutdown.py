"""The end of an agent whose engine takes questions and answers none."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.daemons import Daemons

pytestmark = pytest.mark.real
LONGER_THAN_THE_TEST_WAITS = 600


def test_sigterm_does_not_wait_for_an_engine_that_says_nothing(
    daemons: Daemons, tmp_path: Path
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as frozen:
        frozen.bind(str(tmp_path / "docker.sock"))
        frozen.listen(100)
        url = f"unix://{tmp_path}/docker.sock"
        agent = daemons.agent(docker={"url": url, "timeout_seconds": LONGER_THAN_THE_TEST_WAITS})
        assert agent.ask("GET", "/v1/apps/none").status_code == 404

        assert agent.terminate() == 0
        assert "Traceback" not in agent.log()
