"""All pages: each is run by a test, hides no command from it, and links to what exists."""

import re

import pytest

from tests.support import pages
from tests.support.pages import FENCED, TOP, Page, links, resolves

LINKED = sorted({*pages.names(), "CONTRIBUTING.md", "CHANGELOG.md"})
# Of which only the first one holds commands.
LANGUAGES = {"sh", "json", "ini", "yaml", "nginx", "haproxy", "text", "mermaid"}


def test_each_page_is_run_by_a_test() -> None:
    mark = re.compile(r'mark\.page\("([^"]+)"\)')
    marked = {name for file in TOP.glob("tests/**/*.py") for name in mark.findall(file.read_text())}

    assert marked == set(pages.names())


@pytest.mark.parametrize("name", pages.names())
def test_a_page_has_its_commands_in_blocks_that_are_run(name: str) -> None:
    text = Page(name).text
    outside = FENCED.sub("", text)

    assert {found[1] for found in FENCED.finditer(text)} <= LANGUAGES
    assert "```" not in outside, "a block has no language"
    assert not re.search("^    ", outside, re.MULTILINE), "a block is indented, not fenced"


@pytest.mark.parametrize("name", pages.names())
def test_no_command_of_a_page_shows_a_key_to_the_users_of_the_machine(name: str) -> None:
    assert re.findall(r"""(?:-H|--header)[ =]*["']?Authorization.*""", Page(name).text) == []


@pytest.mark.parametrize("name", LINKED)
def test_each_relative_link_and_anchor_resolves(name: str) -> None:
    page = TOP / name
    broken = [target for target in links(page) if not resolves(target, page)]

    assert broken == []


def test_what_is_looked_for_is_found() -> None:
    page = TOP / "README.md"

    assert "docs/rollout.md" in set(links(page))
    assert not resolves("docs/nothing.md", page)
    assert not resolves("docs/rollout.md#nothing", page)
