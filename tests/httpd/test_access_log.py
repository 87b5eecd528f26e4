import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from httpd.access_log import QUIET, AccessLog, Answered, answered
from httpd.auth import CALLER, Caller
from httpd.metrics import RequestMetrics
from tests.support.httpd.log_lines import LogLines
from tests.support.machine.clocks import ManualClock


def access_log(lines: LogLines, level: str = "info", clock: ManualClock | None = None) -> AccessLog:
    metrics = RequestMetrics(CollectorRegistry())
    return AccessLog(lines.logger(level), metrics, monotonic=clock or ManualClock())


def request(method: str, path: str = "/nodes/a%0aFAKE", *, quiet: bool = False) -> web.Request:
    made = make_mocked_request(method, path, headers={"User-Agent": "x\x80"})
    made[CALLER] = Caller("ops", frozenset({"write"}))
    if quiet:
        made[QUIET] = True
    return made


async def test_a_change_is_one_line_with_who_and_what() -> None:
    lines = LogLines()
    access_log(lines).record(answered(request("POST"), 200), 0.0042)
    assert lines == [
        {
            "event": "request",
            "level": "info",
            "caller": "ops",
            "remote": lines[0]["remote"],
            "method": "POST",
            "path": "/nodes/a%0AFAKE",
            "status": 200,
            "milliseconds": 4.2,
        }
    ]


async def test_reads_and_quiet_requests_are_written_only_when_debugging() -> None:
    for level, expected in (("info", 0), ("debug", 2)):
        lines = LogLines()
        log = access_log(lines, level)
        log.record(answered(request("GET"), 200), 0)
        log.record(answered(request("POST", quiet=True), 200), 0)
        assert len(lines) == expected


async def test_a_rejected_quiet_request_is_written_with_its_reason() -> None:
    lines = LogLines()
    access_log(lines).record(answered(request("POST", quiet=True), 409, "a clone"), 0)
    assert (lines[0]["reason"], lines[0]["level"]) == ("a clone", "info")


async def test_our_own_failures_are_warnings() -> None:
    lines = LogLines()
    access_log(lines).record(answered(request("GET"), 503, "away"), 0)
    assert lines[0]["level"] == "warning"


async def test_a_health_check_that_fails_again_and_again_repeats_no_line() -> None:
    lines = LogLines()
    log = access_log(lines)

    for status in (503, 503, 431):
        log.record(Answered("/healthz", "GET", "/healthz", status, None, None, quiet=True), 0)

    assert [line["status"] for line in lines] == [431]


@pytest.mark.slow
async def test_a_flood_is_ten_lines_a_second_and_the_rest_is_counted() -> None:
    lines, clock = LogLines(), ManualClock()
    log = access_log(lines, clock=clock)
    for _ in range(100):
        log.record(answered(request("GET"), 401, "no key"), 0)
    assert len(lines) == 10
    log.record(answered(request("GET"), 404, "another status is not held back"), 0)
    assert len(lines) == 11
    clock.now += 1.0
    log.record(answered(request("GET"), 401, "no key"), 0)
    assert lines[-1]["suppressed"] == 90
    await asyncio.sleep(0)
