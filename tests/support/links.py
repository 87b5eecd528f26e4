"""The relative links of pages, and whether they lead anywhere."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.pages import FENCED

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's relative links."""
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def resolves(target: str, page: Path) -> bool:
    """Return whether a link of a page leads to a file, and to a heading if it names one."""
    path, _, anchor = target.partition("#")
    linked = page.parent / path if path else page
    return linked.exists() and (not anchor or anchor in _anchors(linked))


def dead_links(folder: Path) -> list[str]:
    """Return the links that lead nowhere, of all pages in a folder."""
    pages = sorted(folder.rglob("*.md"))
    assert pages
    return [
        f"{page.relative_to(folder)}: {target}"
        for page in pages
        for target in links(page)
        if not resolves(target, page)
    ]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get where it is shown as HTML."""
    text = FENCED.sub("", page.read_text())
    return {_anchor(heading) for heading in HEADING.findall(text)}


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
