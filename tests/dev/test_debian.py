"""Where Debian systems for tests come from."""

from pathlib import Path

import pytest

from dev.debian import mirror

SECURITY = "http://mirror.example.com/debian-security"
MAIN = "http://mirror.example.com/debian"


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sources.list.d/debian.sources", f"Types: deb\nURIs: {SECURITY}\n\nURIs: {MAIN}\n", MAIN),
        ("sources.list.d/debian.sources", f"URIs: {SECURITY} {MAIN}/\n", f"{MAIN}/"),
        ("sources.list", f"# deb http://old/debian\ndeb {SECURITY} x\ndeb {MAIN} x main\n", MAIN),
        ("sources.list", f"deb [signed-by=/k.gpg] {MAIN} x main\n", MAIN),
        ("sources.list", "deb http://archive.ubuntu.com/ubuntu noble main\n", None),
        ("other.list", MAIN, None),
    ],
)
def test_the_mirror_is_that_of_this_machines_apt(
    tmp_path: Path, file: str, text: str, expected: str | None
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)

    assert mirror(tmp_path) == expected
