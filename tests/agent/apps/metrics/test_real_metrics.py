"""What a real engine measures."""

from functools import partial

import pytest

from agent.engine.engine import Engine
from agent.engine.models import MIB
from dev.waiting import until
from tests.support.agent.in_process import InProcessAgent
from tests.support.daemons import Daemons

pytestmark = [pytest.mark.real, pytest.mark.engines]


async def test_what_apps_have_on_disk(
    agent: InProcessAgent,
    engine_url: str,
    busybox_image: str,
) -> None:
    record = await agent.create(busybox_image, data=["/kept"])
    engine = Engine(url=engine_url, timeout_seconds=30)
    try:
        for file, mebibytes in (("/kept/a", 1), ("/b", 2)):
            command = [
                "busybox",
                "dd",
                "if=/dev/zero",
                f"of={file}",
                "bs=1048576",
                f"count={mebibytes}",
            ]
            assert (await engine.execute(record["container_id"], command)).exit_code == 0
        usage = await engine.disk_usage(seconds=120)
        image = await engine.image(record["image_id"])
    finally:
        await engine.close()

    assert MIB <= usage.volumes[record["volumes"]["/kept"]] < 2 * MIB
    assert 2 * MIB <= usage.containers[record["container_id"]] < 3 * MIB
    assert image is not None
    assert image.created_at is not None


def test_a_scrape_shows_apps(daemons: Daemons, engine_url: str, busybox_image: str) -> None:
    agent = daemons.agent(engine=engine_url)
    created = agent.ask("POST", "/v1/apps", json={"name": "measured-app", "image": busybox_image})
    assert created.status_code == 201, created.text

    def shows(metric: str) -> bool:
        return f'{metric}{{app="measured-app"' in agent.ask("GET", "/metrics").text

    try:
        until(lambda: shows("rollcall_app_state"), "the state of the app", within=30)
        agent.restart()
        for metric in ("memory_bytes", "cpu_seconds_total", "image_created_timestamp_seconds"):
            until(partial(shows, f"rollcall_app_{metric}"), metric, within=30)
    finally:
        agent.ask("DELETE", "/v1/apps/measured-app")
