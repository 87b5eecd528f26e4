"""A disk that becomes full while data is put back."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.containers import read_file, write_file
from tests.support.agent.engines.dockerd import IMAGE, Dockerd
from tests.support.agent.in_process import OPERATOR, in_process_agent
from tests.support.agent.tars import packed
from tests.support.machine.disks import new_disk
from tests.support.requirements import need_root

pytestmark = pytest.mark.real("dockerd", "mkfs.ext4", "mount")

DISK_MIB = 128


@pytest.fixture
def engine_on_a_small_disk(tmp_path: Path) -> Iterator[Dockerd]:
    """Yield an engine whose data is on a small disk."""
    need_root()
    with new_disk(tmp_path, mebibytes=DISK_MIB).mounted() as disk, Dockerd() as engine:
        engine.data_root = disk / "data"
        engine.start()
        engine.build()
        yield engine


async def test_data_that_does_not_fit_is_rejected_and_nothing_has_changed(
    tmp_path: Path, engine_on_a_small_disk: Dockerd
) -> None:
    engine = engine_on_a_small_disk
    client = engine.client()
    async with in_process_agent(tmp_path, engine.url, min_free_percent=0) as agent:
        record = await agent.create(IMAGE)
        write_file(client, record, "before")
        stopped = (await agent.ask("PUT", f"/{record['name']}/stop")).json
        tar = packed({"srv/": None, "srv/large": bytes(DISK_MIB << 20)})

        async with agent.session.put(
            f"{agent.base_url}/v1/apps/{record['name']}/data",
            headers={"Authorization": f"Bearer {OPERATOR}"},
            data=io.BytesIO(tar),
        ) as response:
            status, message = response.status, (await response.json())["message"]

        assert (status, "no space left" in message) == (507, True)
        assert await agent.get(record["name"]) == stopped
        assert len(client.volumes()["Volumes"]) == 1
        assert len(client.containers(all=True)) == 1
        started = (await agent.ask("PUT", f"/{record['name']}/start")).json
        assert read_file(client, started) == "before"
    client.close()
