import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output.text import age, size, visible


@given(st.text())
def test_no_text_of_a_host_controls_a_terminal(text: str) -> None:
    shown = visible(text)

    categories = {unicodedata.category(character) for character in shown}
    assert categories.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-1", "web-1"),
        ("größe 東京", "größe 東京"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_what_could_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_ages_and_sizes_are_short() -> None:
    assert [age(each) for each in (-5, 12, 119, 120, 7199, 7200, 172_799, 172_800)] == [
        *("0s", "12s", "119s", "2m", "119m", "2h", "47h", "2d")
    ]
    assert [size(each) for each in (None, 0, 1023, 1536, 5 * 2**30, 2**50)] == [
        *("-", "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "1048576.0 GiB")
    ]
