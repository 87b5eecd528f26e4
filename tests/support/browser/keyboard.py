"""Going through a page with the keyboard alone."""

from playwright.sync_api import Page

MOST = 100
FOCUSED = """
() => {
  const element = document.activeElement;
  return element.labels?.[0]?.textContent ?? element.textContent;
}
"""


def tab_to(page: Page, name: str, *, key: str = "Tab") -> None:
    """Press Tab until a field with this label has the focus, or a link or button with this text.

    ``key`` is what is pressed, such as ``Shift+Tab``.
    """
    passed = []
    for _ in range(MOST):
        page.keyboard.press(key)
        focused = page.evaluate(FOCUSED)
        if focused == name:
            return
        passed.append(focused[:40])
    raise AssertionError(f"{name!r} is not among {passed}")
