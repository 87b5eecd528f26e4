"""A container that runs on without its ports, as after a restart of an engine with live-restore."""

from pathlib import Path
from typing import Any

import pytest

from agent.engine import DockerEngine
from tests.agent.fake_engine import HTTP, ID, SSH, faked, inspected, reading


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
        ("running", (), f"port {SSH} and {HTTP};"),
        ("restarting", (), None),
        ("exited", (), None),
    ],
)
async def test_a_running_app_whose_ports_are_lost_says_so(
    tmp_path: Path, state: str, ports: tuple[int, ...], message: str | None
) -> None:
    async with faked() as fake:
        fake.say("GET /containers/json", (200, [listed(state, *ports)]))
        fake.say(f"GET /containers/{ID}/json", (200, inspected(state, *ports)))
        engine = DockerEngine(url=fake.url, timeout_seconds=10)
        async with reading(engine, tmp_path) as readings:
            (brief,), full = await readings.all(), await readings.one("app")
        await engine.close()

    assert brief.message == full.message
    assert (full.message is None) == (message is None)
    assert message is None or message in str(full.message)
