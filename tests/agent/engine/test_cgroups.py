"""What an engine says on a kernel with cgroup v2, or with less than one would wish for."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.apps.errors import AppNotRunning
from agent.apps.service.queries import AppQueries
from agent.engine.engine import Engine
from agent.engine.errors import EngineError
from tests.support.agent.engines.fake_docker_api import (
    ID,
    INFO,
    NO_TIME,
    NOW,
    SPEC,
    FakeDockerApi,
    app_queries,
    inspect_response,
)
from tests.support.agent.in_process import in_process_agent
from tests.support.waiting import async_until

STATS = f"GET /containers/{ID}/stats"
NO_SWAP = (
    "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory"
    " limited without swap."
)
# As engines from 20.10 on put together what the kernel counts: statistics of cgroup v2 ...
SECOND: dict[str, Any] = {
    "read": NOW,
    "preread": NO_TIME,
    "pids_stats": {"current": 7, "limit": 512},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"major": 254, "minor": 0, "op": "read", "value": 4096},
            {"major": 254, "minor": 0, "op": "write", "value": 8192},
            {"major": 254, "minor": 16, "op": "read", "value": 1},
            {"major": 254, "minor": 16, "op": "write", "value": 2},
        ],
        "io_serviced_recursive": None,
        "io_queue_recursive": None,
        "io_service_time_recursive": None,
        "io_wait_time_recursive": None,
        "io_merged_recursive": None,
        "io_time_recursive": None,
        "sectors_recursive": None,
    },
    "num_procs": 0,
    "storage_stats": {},
    "cpu_stats": {
        "cpu_usage": {
            "total_usage": 5_000_000,
            "usage_in_kernelmode": 2_000_000,
            "usage_in_usermode": 3_000_000,
        },
        "system_cpu_usage": 45_000_000_000,
        "online_cpus": 2,
        "throttling_data": {"periods": 1, "throttled_periods": 0, "throttled_time": 0},
    },
    "precpu_stats": {"cpu_usage": {"total_usage": 0}, "throttling_data": {}},
    "memory_stats": {
        "usage": 9_000_000,
        "stats": {"active_file": 500_000, "anon": 6_000_000, "inactive_file": 2_000_000},
        "limit": 33_554_432,
    },
    "name": "/app",
    "id": ID,
    "networks": {"eth0": {"rx_bytes": 396, "tx_bytes": 42}},
}
# ... and what differs with v1, without the memory controller, and where nothing is measured.
FIRST = {
    **SECOND,
    "memory_stats": {
        "usage": 9_000_000,
        "max_usage": 10_000_000,
        "stats": {"inactive_file": 0, "total_inactive_file": 3_000_000},
        "limit": 33_554_432,
    },
}
UNCOUNTED = {**SECOND, "memory_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}}
EMPTY = {
    "read": NO_TIME,
    "preread": NO_TIME,
    "pids_stats": {},
    "blkio_stats": {"io_service_bytes_recursive": None},
    "cpu_stats": {"cpu_usage": {"total_usage": 0}, "throttling_data": {}},
    "memory_stats": {},
    "name": "/app",
    "id": ID,
}


@pytest.fixture
async def readings(engine: Engine, tmp_path: Path) -> AsyncIterator[AppQueries]:
    async with app_queries(engine, tmp_path) as readings:
        yield readings


@pytest.mark.slow
async def test_memory_is_reported_without_what_the_kernel_would_give_back_on_either_cgroup(
    fake: FakeDockerApi, readings: AppQueries
) -> None:
    fake.respond(STATS, (200, SECOND), (200, FIRST))

    second, first = await readings.stats("app"), await readings.stats("app")

    # Without these the engine waits for a second, to give two samples at once.
    asked = {key: value.lower() for key, value in fake.queries[STATS].items()}
    assert asked in ({"stream": "false", "one-shot": "true"}, {"stream": "0", "one-shot": "1"})
    assert (second.memory_bytes, first.memory_bytes) == (7_000_000, 6_000_000)
    assert second.memory_limit_bytes == 32 << 20
    assert (second.block_read_bytes, second.block_write_bytes) == (4097, 8194)
    assert (second.network_rx_bytes, second.network_tx_bytes, second.pids) == (396, 42, 7)


async def test_the_share_of_the_cpu_needs_no_figures_of_each_core(
    fake: FakeDockerApi, readings: AppQueries
) -> None:
    later = {**SECOND, "cpu_stats": {**SECOND["cpu_stats"]}}
    later["cpu_stats"]["cpu_usage"] = {"total_usage": 255_000_000}
    later["cpu_stats"]["system_cpu_usage"] = 46_000_000_000
    fake.respond(STATS, (200, SECOND), (200, later))

    assert (await readings.stats("app")).cpu_percent is None
    # A quarter of a second, of the one second that two cores had together.
    assert (await readings.stats("app")).cpu_percent == 50


async def test_a_running_app_whose_memory_the_kernel_does_not_count_is_measured_without_it(
    fake: FakeDockerApi, readings: AppQueries
) -> None:
    fake.respond(STATS, (200, UNCOUNTED))

    stats = await readings.stats("app")

    assert (stats.memory_bytes, stats.memory_limit_bytes) == (None, None)
    assert (stats.pids, stats.block_read_bytes, stats.network_rx_bytes) == (7, 0, 396)


@pytest.mark.slow
async def test_a_running_app_that_the_engine_does_not_measure_does_not_count_as_down(
    fake: FakeDockerApi, readings: AppQueries
) -> None:
    fake.respond(STATS, (200, EMPTY))
    fake.respond(
        f"GET /containers/{ID}/json",
        (200, inspect_response("running")),
        (200, inspect_response("exited")),
    )

    with pytest.raises(EngineError, match=r"`app` runs, but .* does not measure it"):
        await readings.stats("app")
    with pytest.raises(AppNotRunning):
        await readings.stats("app")


async def test_what_the_engine_warns_of_is_no_failure(fake: FakeDockerApi, engine: Engine) -> None:
    fake.respond("POST /containers/create", (201, {"Id": ID, "Warnings": [NO_SWAP]}))
    fake.respond(f"POST /containers/{ID}/update", (200, {"Warnings": [NO_SWAP]}))

    assert await engine.create(SPEC) == ID
    await engine.limit(ID, cpu=50, memory=32)


@pytest.mark.slow
async def test_limits_that_the_kernel_does_not_have_are_reported_once_the_engine_is_found(
    fake: FakeDockerApi, tmp_path: Path
) -> None:
    fake.respond("GET /info", (200, {**INFO, "MemoryLimit": False, "SwapLimit": False}))
    fake.respond("GET /containers/json", (200, []))
    fake.respond("GET /events", (200, None))

    async with in_process_agent(tmp_path, fake.url) as agent:

        async def listened_again() -> bool:
            return fake.asked.count("GET /events") > 1

        await async_until(listened_again)
        warned = [each for each in agent.log.entries if "cannot enforce" in each["event"]]

    assert [each["of"] for each in warned] == ["memory, swap"]


async def test_an_engine_that_has_all_limits_is_no_reason_to_warn(engine: Engine) -> None:
    assert (await engine.info()).unsupported_limits == ()
