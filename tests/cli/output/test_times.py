"""Times of the API, as people read them."""

from datetime import date

import pytest

from cli.output.times import duration_seconds, short, to_seconds

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
