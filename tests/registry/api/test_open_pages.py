"""What needs no key, and only where the settings say so."""

import pytest

from tests.support.registry.in_process import in_process_registry

PAGES = ("/metrics", "/swagger.json")
CLOSED = ("/nodes", "/nodes/web-1", "/prometheus/web", "/nothing")


@pytest.mark.slow
@pytest.mark.parametrize("open_page", PAGES)
async def test_the_settings_open_one_page_for_reading_and_nothing_else(open_page: str) -> None:
    metrics = open_page == "/metrics"
    async with in_process_registry(open_metrics=metrics, open_swagger=not metrics) as registry:
        found = {
            path: (await registry.ask("GET", path, key=None)).status for path in (*PAGES, *CLOSED)
        }

        assert found == {path: 200 if path == open_page else 401 for path in (*PAGES, *CLOSED)}
        assert (await registry.ask("GET", open_page)).status == 200  # with a key too
        changed = await registry.ask("POST", open_page, key=None)
        assert changed.status in {401, 405}
