"""The page about the API: its commands, against both daemons and a real engine."""

import pytest

from agent.api.streams import MAX_READERS
from agent.apps.repository.events import MAX_EVENTS
from agent.state.history import (
    MAX_EVENTS_OF_AN_APP,
    MAX_FORMER_APPS,
    MAX_LATEST,
    MAX_MESSAGE_LENGTH,
)
from httpd.sse import COMMENT_SECONDS
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page


@pytest.mark.real("curl")
@pytest.mark.page("docs/api.md")
def test_each_command_works_and_answers_as_shown(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page)


@pytest.mark.page("docs/api.md")
def test_the_limits_of_events_are_those_of_the_agent(page: Page) -> None:
    assert f"the app's last {MAX_EVENTS_OF_AN_APP:,} events" in page.text
    assert f"are kept until {MAX_FORMER_APPS} others have gone after it" in page.text
    assert f"keeps the last {MAX_EVENTS:,} events for that, and {MAX_LATEST:,}\n" in page.text
    assert f"At most {MAX_READERS} clients follow events" in page.text
    assert f"at most {MAX_MESSAGE_LENGTH:,} characters" in page.text
    assert f"every {COMMENT_SECONDS:g} seconds" in page.text
