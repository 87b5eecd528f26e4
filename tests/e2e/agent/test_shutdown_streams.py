"""A daemon that gets SIGTERM ends in order, though clients still read its streams."""

import secrets
from pathlib import Path

import pytest
import requests

from tests.support.daemons import Daemons, FreePort

pytestmark = pytest.mark.real


def test_a_log_that_is_followed_ends_with_the_agent_and_does_not_hold_it_up(
    tmp_path: Path, free_port: FreePort, engine_url: str, busybox_image: str
) -> None:
    name = f"ending-{secrets.token_hex(4)}"
    with Daemons(folder=tmp_path, free_port=free_port) as daemons:
        agent = daemons.agent(registries=[], engine=engine_url)
        created = agent.ask("POST", "/v1/apps", json={"name": name, "image": busybox_image})
        assert created.status_code == 201, created.text
        try:
            with requests.get(
                f"{agent.base_url}/v1/apps/{name}/logs?follow=true",
                headers={"Authorization": agent.key},
                stream=True,
                timeout=60,
            ) as followed:
                assert followed.status_code == 200
                assert agent.terminate() == 0
                # Cut off in the middle, this would raise.
                assert followed.content == b""
        finally:
            agent.start()
            agent.ask("DELETE", f"/v1/apps/{name}")
