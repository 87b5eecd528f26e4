from pathlib import Path

import pytest

from cli.changes.fields import in_mebibytes, read_fields
from cli.errors import WrongUsage


def test_options_win_over_set_and_both_over_the_file(tmp_path: Path) -> None:
    file, env_file = tmp_path / "shop.yml", tmp_path / "shop.env"
    file.write_text("image: shop:1\ncpu: 50\nmemory: 64\nenv: {A: a}\n")
    env_file.write_text("# comment\n\nMODE=live=1\n")

    fields = read_fields(
        image="shop:2",
        cpu=None,
        file=file,
        env_file=env_file,
        settings=["memory=128", "health={path: /up}", "pull="],
    )

    assert fields == {
        "image": "shop:2",
        "cpu": 50,
        "memory": 128,
        "env": {"MODE": "live=1"},
        "health": {"path": "/up"},
        "pull": None,
    }


@pytest.mark.parametrize("text", ["- a", "image", "[", "1: 2", "a: b: c", "\x80"])
def test_a_file_that_holds_no_fields_is_rejected(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.yml"
    file.write_bytes(text.encode("latin-1"))

    with pytest.raises(WrongUsage, match=r"shop\.yml"):
        read_fields(file=file)


@pytest.mark.parametrize("text", ["MODE", "=live", "A=1\nB"])
def test_a_line_of_the_environment_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.env"
    file.write_text(text)

    with pytest.raises(WrongUsage, match=r"shop\.env, line \d: not NAME=VALUE"):
        read_fields(env_file=file)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_only_a_line_feed_ends_a_line_of_the_environment(tmp_path: Path, sign: str) -> None:
    file = tmp_path / "shop.env"
    file.write_text(f"TOKEN=abc{sign}ADMIN=1\r\nMODE=live\n", "utf-8")

    assert read_fields(env_file=file) == {"env": {"TOKEN": f"abc{sign}ADMIN=1", "MODE": "live"}}


def test_a_number_with_a_leading_zero_is_not_octal(tmp_path: Path) -> None:
    file = tmp_path / "shop.yml"
    file.write_text("env: {MODE: 0755, TIME: 1:30}\n")

    assert read_fields(file=file, settings=["memory=010", "cpu=0"]) == {
        "memory": 10,
        "cpu": 0,
        "env": {"MODE": "0755", "TIME": "1:30"},
    }


def test_a_setting_that_is_none_is_named(tmp_path: Path) -> None:
    for text in ("cpu", "cpu={", "description=2026-13-45", "env={A: 1, A: 2}"):
        with pytest.raises(WrongUsage, match="--set"):
            read_fields(settings=[text])
    with pytest.raises(WrongUsage, match="No such file"):
        read_fields(file=tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("512", 512), ("48M", 48), ("48MiB", 48), ("1G", 1024), ("2gi", 2048), (64, 64), (None, None)],
)
def test_memory_has_binary_units(text: object, mebibytes: int | None) -> None:
    assert in_mebibytes({"memory": text, "cpu": 50}) == {"memory": mebibytes, "cpu": 50}


@pytest.mark.parametrize("text", ["48K", "1T", "1.5G", "-1M", "M", "48 M", "48MB", ""])
def test_memory_that_is_none_is_named(text: str) -> None:
    with pytest.raises(WrongUsage, match="such as 48M or 1G"):
        in_mebibytes({"memory": text})


@pytest.mark.parametrize(
    ("whole", "is_new", "fields"),
    [
        (None, False, {"env_set": {"A": "1=2"}, "env_unset": ["B"]}),
        (None, True, {"env": {"A": "1=2"}}),
        ("A=0\nB=0\nC=0\n", False, {"env": {"A": "1=2", "C": "0"}}),
        ("A=0\nB=0\nC=0\n", True, {"env": {"A": "1=2", "C": "0"}}),
    ],
)
def test_variables_change_the_whole_environment_that_is_given_else_that_of_the_app(
    tmp_path: Path, whole: str | None, *, is_new: bool, fields: dict[str, object]
) -> None:
    file = None
    if whole is not None:
        file = tmp_path / "shop.env"
        file.write_text(whole)
    given = read_fields(env_file=file, variables=["A=1=2"], unset=["B", "B"], is_new=is_new)

    assert given == fields


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        (["MODE"], "--env 'MODE' is not NAME=VALUE"),
        (["=x"], "--env '=x' is not NAME=VALUE"),
        (["A=1", "B=2"], "the same variable: B"),
    ],
)
def test_variables_that_mean_nothing_are_named(variables: list[str], reported: str) -> None:
    with pytest.raises(WrongUsage, match=reported):
        read_fields(variables=variables, unset=["B"])
