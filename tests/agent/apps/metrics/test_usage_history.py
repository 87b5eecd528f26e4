"""What apps have used over the last hour, step by step."""

from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import LogCapture

from agent.apps.metrics.sampler import AppSampler, Intervals
from agent.apps.metrics.usage_history import STEPS, Measured, UsageHistory
from agent.engine.models import MIB, Sample
from agent.model import NewApp
from tests.support.agent.engines.fake_engine import IMAGE, FakeEngine
from tests.support.agent.running_apps import ASKER, running_apps
from tests.support.waiting import async_until

SECOND_NS = 10**9
OFTEN = Intervals(states=0.02, usage=0.02, disk=60, debounce=0, first_disk=60)


def measured(seconds: float, at: float, *, container: str = "c1", memory: int = MIB) -> Measured:
    """Return what a container had used: seconds of CPU, at a time."""
    sample = Sample(
        cpu_ns=int(seconds * SECOND_NS),
        system_ns=0,
        cpus=2,
        memory_bytes=memory,
        memory_limit_bytes=None,
        network_rx_bytes=0,
        network_tx_bytes=0,
        block_read_bytes=0,
        block_write_bytes=0,
        pids=1,
    )
    return Measured(container, at, sample)


def test_cpu_is_the_mean_since_the_step_before_in_percent_of_one_core() -> None:
    history = UsageHistory(step_seconds=60)
    history.record(1000, {"web": measured(5, 1000)})
    history.record(1060, {"web": measured(95, 1060, memory=2 * MIB)})
    history.record(1120.7, {"web": measured(98, 1120)})

    samples = history.samples(["web"])

    assert (samples.step_seconds, samples.until) == (60, 1120)
    assert samples.apps[0].cpu_percent == [None, 150.0, 5.0]
    assert samples.apps[0].memory_bytes == [MIB, 2 * MIB, MIB]


def test_what_was_not_measured_or_cannot_be_compared_is_none() -> None:
    history = UsageHistory(step_seconds=60)
    for at, seconds, container in (
        *((60, 1, "c1"), (120, 2, "c2"), (180, 1, "c2"), (180, 3, "c2"), (240, 3, "c2")),
    ):
        history.record(at, {"web": measured(seconds, at, container=container)})
    history.record(300, {})

    [db, web] = history.samples(["web", "db"]).apps

    assert web.cpu_percent == [None, None, None, None, 0.0, None]
    assert web.memory_bytes == [*[MIB] * 5, None]
    assert db.cpu_percent == db.memory_bytes == [None] * 6


def test_an_hour_is_kept_and_nothing_is_told_before_the_first_step() -> None:
    history = UsageHistory(step_seconds=60)
    assert msgspec.to_builtins(history.samples([])) == {
        "step_seconds": 60,
        "until": None,
        "apps": [],
    }
    for number in range(2 * STEPS):
        history.record(60 * number, {"web": measured(number, 60 * number)})
    assert len(history.samples(["web"]).apps[0].cpu_percent) == STEPS


@pytest.mark.slow
async def test_the_apps_of_the_engine_are_measured(tmp_path: Path) -> None:
    engine, log = FakeEngine(), structlog.wrap_logger(None, processors=[LogCapture()])
    sampler = AppSampler(engine=engine, log=log, intervals=OFTEN)
    async with (
        running_apps(tmp_path, engine, LogCapture()) as apps,
        sampler.sampling(apps.queries.all),
    ):
        await apps.create(NewApp(name="shop", image=IMAGE), ASKER)
        await apps.create(NewApp(name="blog", image=IMAGE), ASKER)

        async def are_measured() -> bool:
            return [each.memory_bytes[-2:] for each in sampler.usage().apps] == [[MIB, MIB]] * 2

        await async_until(are_measured)
        assert [each.name for each in sampler.usage().apps] == ["blog", "shop"]
        assert sampler.usage().apps[0].cpu_percent[-1] == 0.0
        await apps.delete("blog", ASKER)

        async def is_gone() -> bool:
            return [each.name for each in sampler.usage().apps] == ["shop"]

        await async_until(is_gone)
