"""How an app is, in one line."""

from typing import Any

import pytest

from cli.output.health import verdict
from tests.support.cli.fake_agent import APP_RECORD
from tests.support.verdicts import CASES, HEALTHY


@pytest.mark.parametrize(("fields", "events", "text"), CASES)
def test_the_record_and_the_events_say_how_an_app_is(
    fields: dict[str, Any], events: list[dict[str, Any]], text: str
) -> None:
    found = verdict(APP_RECORD | fields, events)

    assert (found.is_healthy, found.text) == (text in HEALTHY, text)
