"""Which columns of a table shrink on a narrow terminal."""

from cli.output.terminal import fitting


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
