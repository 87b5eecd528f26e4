"""How an app is, in one line, and times that a node may have."""

from typing import Any

import pytest

from cli.output.health import moment, silence, verdict
from tests.support.cli.fake_agent import APP_RECORD
from tests.support.verdicts import CASES, HEALTHY


@pytest.mark.parametrize(("fields", "events", "text"), CASES)
def test_the_record_and_the_events_say_how_an_app_is(
    fields: dict[str, Any], events: list[dict[str, Any]], text: str
) -> None:
    found = verdict(APP_RECORD | fields, events)

    assert (found.is_healthy, found.text) == (text in HEALTHY, text)


def test_a_moment_is_reported_in_utc() -> None:
    assert moment(1_700_000_000) == "2023-11-14 22:13:20 UTC"


@pytest.mark.parametrize("odd", [10**13, -(10**13), 10**18, 2**63])
def test_a_moment_of_no_calendar_is_reported_as_a_number(odd: int) -> None:
    assert moment(odd) == f"Unix time {odd:g}"
    assert silence(odd, 0).startswith(f"no heartbeat since Unix time {odd:g} (")
