"""Texts of attackers, and what must not become of them in a page."""

from playwright.sync_api import Page

TRICKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "\"><iframe srcdoc='<script>alert(1)</script>'>",
    "' onfocus=alert(1) autofocus x='",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "</title></style></textarea><script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
    "<link rel=stylesheet href=http://127.0.0.2:9/x.css>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.2:9/'>",
    "<base href=http://127.0.0.2:9/>",
    "__proto__",
    "\N{RIGHT-TO-LEFT OVERRIDE}txt.exe",
    "a%0d%0aSet-Cookie: x=1",
)
UNSAFE = {"\N{RIGHT-TO-LEFT OVERRIDE}", "\x1b"}
_ELEMENTS = "script:not([src^='pages/']), iframe, img, object, embed, base, meta[http-equiv], style"
_LINKS = "() => Array.from(document.links, link => link.protocol)"


def links(page: Page) -> set[str]:
    """Return the protocols of all links."""
    return set(page.evaluate(_LINKS))


def shown(text: str) -> str:
    """Return a text as a page shows it."""
    return text.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "\\u202e")


def assert_only_text(page: Page) -> None:
    """Assert that no text of a host became an element, a link or a property of all objects."""
    assert page.locator(_ELEMENTS).count() == 0
    assert not UNSAFE & set(page.inner_text("body") + page.title())
    assert links(page) <= {"http:"}
    assert page.evaluate("() => ({}).polluted") is None
