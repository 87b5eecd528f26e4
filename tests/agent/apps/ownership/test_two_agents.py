"""Two agents with states of their own, on one engine: neither touches what is the other's."""

from pathlib import Path

import docker
import pytest

from tests.support.agent.containers import read_file, write_file
from tests.support.agent.in_process import in_process_agent

pytestmark = pytest.mark.real

OTHER = "57a2c1b0-0000-4000-8000-000000000002"


async def test_a_second_agent_neither_lists_nor_changes_nor_removes_apps_of_the_first(
    tmp_path: Path, engine_url: str, busybox_image: str, docker_client: docker.APIClient
) -> None:
    async with in_process_agent(tmp_path / "first", engine_url) as first:
        record = await first.create(busybox_image)
        name = record["name"]
        write_file(docker_client, record, "precious")

        # As a trial `make run` on a host of production.
        async with in_process_agent(
            tmp_path / "second", engine_url, identity=OTHER, adopt=True
        ) as second:
            assert name not in [each["name"] for each in (await second.ask("GET", "")).json]
            for method, path in (("GET", ""), ("PUT", "/stop"), ("DELETE", "")):
                assert (await second.ask(method, f"/{name}{path}")).status == 404
            taken = await second.ask("POST", "", {"name": name, "image": busybox_image})
            assert taken.status == 409
            assert f"container `{name}`" in taken.json["message"]
            assert "rollcall-agent adopt" in taken.json["message"]
            reported = [
                each.name for each in second.apps.context.ownership.foreign if each.app == name
            ]
            assert sorted(reported) == sorted([name, f"rollcall-{name}"])
            logged = {each.get("name") for each in second.log.entries}
            assert {name, f"rollcall-{name}"} <= logged

        assert await first.get(name) == record
        assert read_file(docker_client, record) == "precious"
