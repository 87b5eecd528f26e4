"""What needs no key, and only where the settings say so."""

import pytest

from registry.daemon import FLUSH_SECONDS
from tests.daemons import Daemon, Daemons

PAGES = ("/metrics", "/swagger.json")
CLOSED = ("/nodes", "/nodes/web-1", "/prometheus/web", "/nothing")
NO_KEY = {"Authorization": ""}


def status(registry: Daemon, method: str, path: str) -> int:
    return registry.ask(method, path, headers=NO_KEY).status_code


@pytest.mark.parametrize("open_page", PAGES)
def test_the_settings_open_one_page_for_reading_and_nothing_else(
    daemons: Daemons, open_page: str
) -> None:
    metrics = open_page == "/metrics"
    registry = daemons.registry(open_metrics=metrics, open_swagger=not metrics)

    found = {path: status(registry, "GET", path) for path in (*PAGES, *CLOSED)}

    assert found == {path: 200 if path == open_page else 401 for path in (*PAGES, *CLOSED)}
    assert registry.ask("GET", open_page).ok  # with a key too


def test_what_is_promised_to_be_durable_within_a_second_is_written_twice_in_one() -> None:
    # A heartbeat may come right after one writing began, and the next one has to end in time.
    assert 2 * FLUSH_SECONDS <= 1
