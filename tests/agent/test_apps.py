"""Every operation on apps, over a real engine."""

import pytest

from tests.agent.rig import Rig

pytestmark = pytest.mark.real


async def test_a_created_app_runs_and_answers_on_its_http_port(
    rig: Rig, busybox_image: str
) -> None:
    record = await rig.create(busybox_image, cpu=50, memory=24, env={"GREETING": "hello"})

    assert record["state"] == "running"
    assert record["desired"] == "running"
    assert record["env"] == {"GREETING": "hello"}
    assert 20000 <= record["http_port"] < 30000
    assert record["ssh_port"] != record["http_port"]
    assert "roll call" in await rig.page(record)
