"""All pages: each is run by a test, hides no command from it, and links to what exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.pages import FENCED, TOP, Page

LINKED = sorted({*pages.names(), "CONTRIBUTING.md", "CHANGELOG.md"})
LANGUAGES = {"sh", "json", "ini", "text", "mermaid"}  # of which only the first one holds commands
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


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


@pytest.mark.parametrize("name", LINKED)
def test_each_relative_link_and_anchor_resolves(name: str) -> None:
    broken = [target for target in _links(name) if not _resolves(target, TOP / name)]

    assert broken == []


def test_what_is_looked_for_is_found() -> None:
    assert "docs/rollout.md" in set(_links("README.md"))
    assert not _resolves("docs/nothing.md", TOP / "README.md")
    assert not _resolves("docs/rollout.md#nothing", TOP / "README.md")


def _links(name: str) -> Iterator[str]:
    text = FENCED.sub("", (TOP / name).read_text())
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def _resolves(target: str, page: Path) -> bool:
    path, _, anchor = target.partition("#")
    linked = page.parent / path if path else page
    return linked.exists() and (not anchor or anchor in _anchors(linked))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get where it is shown as HTML."""
    text = FENCED.sub("", page.read_text())
    return {_anchor(heading) for heading in HEADING.findall(text)}


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
