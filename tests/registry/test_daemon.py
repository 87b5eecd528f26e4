"""What the daemon does by itself, and how often."""

import asyncio
from hashlib import sha256

import pytest
import structlog

from registry.daemon import FLUSH_SECONDS, accept_when_loaded, timeouts
from registry.errors import StoreOpenError
from registry.nodes.changes import Source
from registry.nodes.heartbeats import Report
from runtime.periodic import PeriodicTask
from tests.support.machine.clocks import in_virtual_time
from tests.support.registry.in_process import InProcessRegistry

QUIET_SECONDS = 3.0
BODY = b'{"labels":[],"kv":{}}'


class Start:
    """A store that takes some seconds to load, or cannot be; and when connections were accepted."""

    def __init__(self, *, seconds: float, error: Exception | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._error = error
        self.is_loading = False
        self.accepted: list[float] = []

    async def load(self) -> None:
        """Load the store."""
        self.is_loading = True
        try:
            await asyncio.sleep(self._seconds)
            if self._error is not None:
                raise self._error
        finally:
            await asyncio.sleep(0)
            self.is_loading = False

    async def accept(self) -> None:
        """Accept connections."""
        self.accepted.append(self._loop.time())


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
            source = Source("ops", "127.0.0.1")
            report = Report("h1", sha256(BODY).digest(), source, operator=True)
            assert nodes.heartbeats.accept_unchanged(report) is not None
        elif registry.store.rows["h1"].last_update == wall:
            durable.set_result(clock.uptime - heard)
            await asyncio.Event().wait()
        clock.pass_seconds(seconds)

    log = structlog.get_logger()
    async with PeriodicTask(
        interval=FLUSH_SECONDS, action=nodes.writes.flush, log=log, sleep=sleep
    ):
        # If a flush is under way when the heartbeat comes, that one has to end first.
        assert 2 * await asyncio.wait_for(durable, 10) <= 1


def test_a_host_that_is_not_stale_yet_keeps_its_connection() -> None:
    assert timeouts(stale_after_seconds=900).idle == 900
    assert timeouts(stale_after_seconds=3).idle == 75


@in_virtual_time
async def test_connections_are_accepted_once_the_store_is_loaded_or_takes_long() -> None:
    quick, slow = Start(seconds=1), Start(seconds=60)
    began = asyncio.get_running_loop().time()

    await accept_when_loaded(quick.load, quick.accept, quiet_seconds=QUIET_SECONDS)
    loaded = asyncio.get_running_loop().time()
    await accept_when_loaded(slow.load, slow.accept, quiet_seconds=QUIET_SECONDS)

    assert quick.accepted == [loaded] == [began + 1]
    assert slow.accepted == [loaded + QUIET_SECONDS]
    assert not slow.is_loading


@in_virtual_time
async def test_connections_go_on_waiting_if_the_store_cannot_be_loaded() -> None:
    error = StoreOpenError("the store is damaged")
    quick, slow = Start(seconds=1, error=error), Start(seconds=60, error=error)

    for start in (quick, slow):
        with pytest.raises(StoreOpenError, match="damaged"):
            await accept_when_loaded(start.load, start.accept, quiet_seconds=QUIET_SECONDS)

    assert not quick.accepted
    assert len(slow.accepted) == 1


@in_virtual_time
@pytest.mark.parametrize("seconds", [QUIET_SECONDS / 2, QUIET_SECONDS * 2])
async def test_a_start_that_is_cancelled_ends_loading(seconds: float) -> None:
    start = Start(seconds=60)
    starting = asyncio.create_task(
        accept_when_loaded(start.load, start.accept, quiet_seconds=QUIET_SECONDS)
    )
    await asyncio.sleep(seconds)
    assert start.is_loading

    starting.cancel()
    await asyncio.wait([starting])

    assert starting.cancelled()
    assert not start.is_loading
