from pathlib import Path

import pytest

from cli.errors import WrongUsage
from cli.fields import Fields


def test_options_win_over_set_and_both_over_the_file(tmp_path: Path) -> None:
    file, env_file = tmp_path / "shop.yml", tmp_path / "shop.env"
    file.write_text("image: shop:1\ncpu: 50\nmemory: 64\nenv: {A: a}\n")
    env_file.write_text("# comment\n\nMODE=live=1\n")

    fields = Fields(
        {"image": "shop:2", "cpu": None},
        file=file,
        env_file=env_file,
        settings=["memory=128", "health={path: /up}", "pull="],
    ).read()

    assert fields == {
        "image": "shop:2",
        "cpu": 50,
        "memory": 128,
        "env": {"MODE": "live=1"},
        "health": {"path": "/up"},
        "pull": None,
    }


@pytest.mark.parametrize("text", ["- a", "image", "[", "1: 2", "a: b: c", "\x80"])
def test_a_file_that_holds_no_fields_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.yml"
    file.write_bytes(text.encode("latin-1"))

    with pytest.raises(WrongUsage, match=r"shop\.yml"):
        Fields({}, file=file, env_file=None, settings=()).read()


@pytest.mark.parametrize("text", ["MODE", "=live", "A=1\nB"])
def test_a_line_of_the_environment_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.env"
    file.write_text(text)

    with pytest.raises(WrongUsage, match=r"shop\.env, line \d: not NAME=VALUE"):
        Fields({}, file=None, env_file=file, settings=()).read()


def test_a_setting_that_is_none_is_named(tmp_path: Path) -> None:
    for text in ("cpu", "cpu={"):
        with pytest.raises(WrongUsage, match="--set"):
            Fields({}, file=None, env_file=None, settings=[text]).read()
    with pytest.raises(WrongUsage, match="No such file"):
        Fields({}, file=tmp_path / "none", env_file=None, settings=()).read()
