"""Texts and times, and which columns of a table shrink on a narrow terminal."""

import unicodedata
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output.terminal import fitting
from cli.output.text import age, duration_seconds, short, size, to_seconds, visible


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


TODAY = date(2026, 11, 26)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-26T21:53:08Z", "2026-11-26T21:53:08Z"),
        ("2026-11-26T21:53:08.123Z", "2026-11-26T21:53:08Z"),
        ("2026-11-26T21:53:08.123456789Z", "2026-11-26T21:53:08Z"),
        ("2026-11-26T22:53:08+01:00", "2026-11-26T21:53:08Z"),
        ("soon", "soon"),
        (None, None),
    ],
)
def test_a_time_has_whole_seconds(text: str | None, expected: str | None) -> None:
    assert to_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-26T21:53:08.123Z", "21:53:08"),
        ("2026-11-25T21:53:08Z", "2026-11-25 21:53:08"),
        ("soon", "soon"),
        (None, None),
    ],
)
def test_a_short_time_has_the_date_of_another_day(text: str | None, expected: str | None) -> None:
    assert short(text, today=TODAY) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10s", 10), ("2m", 120), ("3h", 10_800), ("1d", 86_400), ("10", None), ("m", None)],
)
def test_a_duration_has_a_unit(text: str, expected: int | None) -> None:
    assert duration_seconds(text) == expected


def test_a_table_that_fits_is_as_wide_as_its_texts() -> None:
    assert fitting([["APP", "web-1/shop"], ["MESSAGE", "a b"]], available=80) == [10, 7]


def test_the_column_of_messages_shrinks_before_names_do() -> None:
    names, messages = ["APP", "web-2/worker"], ["NOTE", "it ended with exit code 7 just now"]

    assert fitting([names, messages], available=30) == [12, 16]
    assert fitting([names, messages], available=19) == [12, 5]


def test_the_widest_column_shrinks_first() -> None:
    labels, images = ["LABELS", " ".join(["a:b"] * 20)], ["IMAGE", " ".join(["shop"] * 5)]

    assert fitting([labels, images], available=60) == [34, 24]
    assert fitting([labels, images], available=32) == [15, 15]


def test_a_long_word_shrinks_where_nothing_else_can() -> None:
    assert fitting([["HOST", "web-1"], ["LABELS", "x" * 300]], available=40) == [5, 33]


def test_names_and_titles_are_whole_or_it_does_not_fit() -> None:
    columns = [["HOST", "web-1"], ["LABELS", "x" * 8]]

    assert fitting(columns, available=13) == [5, 6]
    assert fitting(columns, available=12) is None


def test_wide_characters_count_as_two() -> None:
    assert fitting([["", "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 3]], available=80) == [6]
