"""One change at a time for an app, apps side by side, and none that a client's leaving ends."""

import asyncio
import time

import pytest

from tests.agent.rig import Rig

pytestmark = pytest.mark.real


async def test_a_second_change_waits_its_turn_and_then_is_a_conflict_that_names_the_first(
    rig: Rig, stubborn_image: str
) -> None:
    record = await rig.create(stubborn_image)
    name = record["name"]

    stopping = asyncio.create_task(rig.ask("PUT", f"/{name}/stop"))
    await rig.until_busy(name)
    busy = await rig.ask("PUT", f"/{name}/start", headers={"Prefer": "wait=0"})
    waited = await rig.ask("PUT", f"/{name}/start")

    assert busy.status == 409
    assert "being stopped" in busy.json["message"]
    assert "`operator`" in busy.json["message"]
    assert (await stopping).status == 200
    assert waited.status == 200
    assert waited.json["state"] == "running"


async def test_a_change_goes_on_when_its_client_has_gone(rig: Rig, stubborn_image: str) -> None:
    record = await rig.create(stubborn_image)

    request = asyncio.create_task(rig.ask("PUT", f"/{record['name']}/stop"))
    await rig.until_busy(record["name"])
    request.cancel()

    await rig.until(record["name"], state="exited", desired="stopped")


async def test_apps_change_side_by_side(rig: Rig, stubborn_image: str) -> None:
    records = [await rig.create(stubborn_image) for _ in range(3)]

    began = time.monotonic()
    await asyncio.gather(*(rig.ask("PUT", f"/{each['name']}/stop") for each in records))

    one_after_the_other = 3 * 1.0  # each takes its second of grace
    assert time.monotonic() - began < one_after_the_other
