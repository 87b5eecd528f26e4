"""A container that runs on without its ports, as after a restart of an engine with live-restore."""

from pathlib import Path
from typing import Any

import pytest

from agent.engine.engine import Engine
from tests.support.agent.engines.fake_docker_api import (
    HTTP,
    ID,
    SSH,
    app_queries,
    fake_docker_api,
    inspect_response,
)


def listed(state: str, *ports: int) -> dict[str, Any]:
    return {
        "Id": ID,
        "Names": ["/app"],
        "Image": "image",
        "ImageID": "sha256:1",
        "State": state,
        "Ports": [{"PrivatePort": 22, "Type": "tcp"}]
        + [{"IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": port} for port in ports],
        "Labels": {"rollcall.app": "app"},
    }


@pytest.mark.parametrize(
    ("state", "ports", "message"),
    [
        ("running", (SSH, HTTP), None),
        ("running", (HTTP, SSH, HTTP), None),
        ("running", (SSH,), f"port {HTTP};"),
        ("running", (), f"ports {SSH} and {HTTP};"),
        ("restarting", (), "the engine starts it again"),
        ("exited", (), None),
    ],
)
async def test_a_running_app_whose_ports_are_lost_says_so(
    tmp_path: Path, state: str, ports: tuple[int, ...], message: str | None
) -> None:
    async with fake_docker_api() as fake:
        fake.respond("GET /containers/json", (200, [listed(state, *ports)]))
        fake.respond(f"GET /containers/{ID}/json", (200, inspect_response(state, *ports)))
        engine = Engine(url=fake.url, timeout_seconds=10)
        async with app_queries(engine, tmp_path) as queries:
            (brief,), full = await queries.all(), await queries.one("app")
        await engine.close()

    assert brief.message == full.message
    assert (full.message is None) == (message is None)
    assert message is None or message in str(full.message)
