"""The page about apps: its commands, against a real engine, and the rules that it gives."""

import pytest

from agent.apps.containers.data import MAX_VOLUMES
from agent.apps.validation import MAX_PATH_LENGTH
from tests.support.e2e.page_runs import MakeRun
from tests.support.pages import Page


@pytest.mark.real("make", "setsid", "curl")
@pytest.mark.page("docs/apps.md")
def test_each_command_works_and_answers_as_shown(page: Page, make_run: MakeRun) -> None:
    make_run.follow(page)


@pytest.mark.page("docs/apps.md")
def test_the_limits_are_those_of_the_agent(page: Page) -> None:
    assert f"at most {MAX_PATH_LENGTH}\ncharacters" in page.text
    assert f"has at most {MAX_VOLUMES} volumes" in page.text
