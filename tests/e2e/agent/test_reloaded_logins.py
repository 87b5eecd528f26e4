"""Logins at servers of images take effect with a reload."""

import os
import signal
from pathlib import Path

import docker
import pytest

from dev.waiting import until
from tests.support.agent.image_registry import PASSWORD, USER, image_registry
from tests.support.agent.kills.observed_app import ObservedApp
from tests.support.daemons import Daemons, FreePort
from tests.support.e2e.commands import SOON_SECONDS, change_settings

pytestmark = pytest.mark.real("docker-registry")


def test_a_login_that_is_added_is_used_without_a_restart(
    daemons: Daemons,
    engine_url: str,
    docker_client: docker.APIClient,
    busybox_image: str,
    tmp_path: Path,
    free_port: FreePort,
) -> None:
    agent = daemons.agent(engine=engine_url, apps={"bind": "127.0.0.1", "stop_seconds": 1})
    app = ObservedApp(agent, docker_client)
    with image_registry(tmp_path / "images", free_port()) as server:
        image = server.push(docker_client, busybox_image, "private")
        body = {"name": app.name, "image": image, "memory": 32}
        assert agent.ask("POST", "/v1/apps", json=body).status_code == 404

        password = tmp_path / "password"
        password.write_text(PASSWORD)
        login = {"server": server.server, "user": USER, "password_file": str(password)}
        change_settings(agent, docker={"registries": [login]})
        os.kill(agent.pid, signal.SIGHUP)

        def created() -> bool:
            return agent.ask("POST", "/v1/apps", json=body).status_code == 201

        until(created, "the login", within=SOON_SECONDS)
        assert "restart to apply" not in agent.log()
        app.delete()
        server.forget(docker_client)
