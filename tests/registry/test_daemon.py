"""What the daemon does by itself, and how often."""

import asyncio

import structlog

from httpd.process import PeriodicTask
from registry.daemon import FLUSH_SECONDS, timeouts
from registry.nodes.directory.events import Source
from tests.support.registry.in_process import InProcessRegistry

BODY = b'{"labels":[],"kv":{}}'


async def test_an_unchanged_heartbeat_is_durable_within_a_second(
    registry: InProcessRegistry,
) -> None:
    nodes, clock = registry.components.nodes, registry.clock
    await registry.ask("POST", "/nodes/h1", data=BODY)
    clock.pass_seconds(30)
    heard, wall = clock.uptime, int(clock.wall)
    durable: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def sleep(seconds: float) -> None:
        if clock.uptime == heard:  # a flush has just ended
            assert (
                nodes.heartbeats.accept_unchanged("h1", BODY, Source("ops", "127.0.0.1"))
                is not None
            )
        elif registry.store.rows["h1"].last_update == wall:
            durable.set_result(clock.uptime - heard)
            await asyncio.Event().wait()
        clock.pass_seconds(seconds)

    log = structlog.get_logger()
    async with PeriodicTask(interval=FLUSH_SECONDS, action=nodes.flush, log=log, sleep=sleep):
        # If a flush is under way when the heartbeat comes, that one has to end first.
        assert 2 * await asyncio.wait_for(durable, 10) <= 1


def test_a_host_that_is_not_stale_yet_keeps_its_connection() -> None:
    assert timeouts(stale_after_seconds=900).idle == 900
    assert timeouts(stale_after_seconds=3).idle == 75
