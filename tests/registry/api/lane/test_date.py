"""The header Date of a heartbeat's answer, in the lane and behind it."""

import asyncio
import time
from datetime import UTC, datetime

import pytest

from tests.support.registry.in_process import in_process_registry
from tests.support.registry.load.pipelined_requests import FIRST, request

# IMF-fixdate of RFC 9110, section 5.6.7.
IMF_FIXDATE = "%a, %d %b %Y %H:%M:%S GMT"


class Reporter:
    """Sends heartbeats over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def report(self) -> list[str]:
        """Return the lines of an answer's head; its Date is that of a second since the request."""
        began = int(time.time())
        self._writer.write(request("POST", "/nodes/web-0", body=FIRST))
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
        size = int(next(line for line in head if line.startswith("Content-Length:")).split()[1])
        await self._reader.readexactly(size)
        date = date_of(head)
        moment = datetime.strptime(date, IMF_FIXDATE).replace(tzinfo=UTC)
        assert moment.strftime(IMF_FIXDATE) == date  # with both digits of the day
        assert began <= moment.timestamp() <= time.time()
        return head


def date_of(head: list[str]) -> str:
    """Return the value of the one Date in a head."""
    (date,) = [line.removeprefix("Date: ") for line in head if line.startswith("Date: ")]
    return date


@pytest.mark.slow
async def test_a_date_is_the_present_second_as_rfc_9110_has_it_in_the_lane_and_behind_it() -> None:
    heads = []
    for lane in (True, False):
        async with in_process_registry(lane=lane) as registry:
            before = asyncio.all_tasks()
            reader, writer = await asyncio.open_connection(*registry.address)
            reporter = Reporter(reader, writer)
            first = await reporter.report()
            # aiohttp has a task for each connection.
            assert (asyncio.all_tasks() == before) is lane
            while date_of(later := await reporter.report()) == date_of(first):
                pass
            heads.append([line.replace(date_of(later), "NOW") for line in later])
            writer.close()
    assert heads[0] == heads[1]
