from pathlib import Path

import pytest

from config.load import ConfigError
from config.registry import RegistryKey
from config.secrets import SecretReader

GOOD = "0123456789abcdef"


def key(name: str, *, value: str | None = None, file: str | None = None) -> RegistryKey:
    return RegistryKey(name=name, value=value, file=file, allow=("read",))


@pytest.fixture
def secrets(tmp_path: Path) -> SecretReader:
    return SecretReader(settings_file=tmp_path / "registry.yml", environ={})


def test_a_key_file_lies_beside_the_settings_and_loses_its_line_end(
    secrets: SecretReader, tmp_path: Path
) -> None:
    (tmp_path / "ops.key").write_text(f"{GOOD}\n")
    assert secrets.keys([key("ops", file="ops.key"), key("b", value=GOOD * 2)]) == [GOOD, GOOD * 2]


def test_a_credential_of_systemd_comes_first(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (tmp_path / "ops.key").write_text("the-other-one-0123")
    (credentials / "ops.key").write_text(GOOD)
    secrets = SecretReader(
        settings_file=tmp_path / "registry.yml",
        environ={"CREDENTIALS_DIRECTORY": str(credentials)},
    )
    assert secrets.keys([key("ops", file="ops.key")]) == [GOOD]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"short", "fewer than 16 characters; make one with: openssl rand -hex 32"),
        (b"", "fewer than 16 characters"),
        (b"abcdefg" * 9, "fewer than 8 different characters; make one with: openssl rand"),
        (b"0123456789 abcdef", "holds white space"),
        (b"0123456789\nabcdef", "holds white space"),
        ("0123456789abcdef\u00e9".encode(), "more than ASCII"),
    ],
)
def test_an_unusable_key_is_rejected_without_showing_it(
    secrets: SecretReader, tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "ops.key").write_bytes(content)
    with pytest.raises(ConfigError) as rejection:
        secrets.keys([key("ops", file="ops.key")])
    assert problem in str(rejection.value)
    assert "keys[0].file" in str(rejection.value)
    assert not content or content.decode() not in str(rejection.value)


def test_a_missing_file_is_named(secrets: SecretReader, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as rejection:
        secrets.keys([key("ops", file="gone.key")])
    assert f"keys[0].file: {tmp_path}/gone.key cannot be read: No such file" in str(rejection.value)


def test_no_key_at_all_is_rejected_with_how_to_make_one(secrets: SecretReader) -> None:
    with pytest.raises(ConfigError, match="make one with: openssl rand -hex 32"):
        secrets.keys([])


def test_the_same_key_for_two_owners_is_rejected(secrets: SecretReader) -> None:
    with pytest.raises(ConfigError, match=r"keys\[1\]: is the same as an earlier key"):
        secrets.keys([key("a", value=GOOD), key("b", value=GOOD)])


def test_keys_that_are_the_same_are_reported_with_those_that_are_not_usable(
    secrets: SecretReader, tmp_path: Path
) -> None:
    short = key("c", value="short")
    owners = [key("a", value=GOOD), short, key("b", value=GOOD), key("d", file="gone"), short]
    with pytest.raises(ConfigError) as rejection:
        secrets.keys(owners)
    reported = [
        mistake.removeprefix(f"{tmp_path}/registry.yml: ") for mistake in rejection.value.mistakes
    ]
    assert [mistake.partition(": ")[0] for mistake in reported] == [
        "keys[1].value",
        "keys[3].file",
        "keys[4].value",
        "keys[2]",
    ]
    assert reported[-1] == "keys[2]: is the same as an earlier key"


@pytest.mark.parametrize(
    ("mode", "is_open"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)]
)
def test_a_key_file_that_other_users_can_read_is_named_with_its_remedy(
    secrets: SecretReader, tmp_path: Path, mode: int, *, is_open: bool
) -> None:
    file = tmp_path / "ops key"
    file.write_text(GOOD)
    file.chmod(mode)
    secrets.keys([key("ops", file="ops key")])

    warning = f"keys[0].file: other users of this host can read {file}; chmod o= '{file}'"
    assert list(secrets.exposed()) == ([warning] if is_open else [])
    assert list(secrets.exposed({"login": "ops key"}))[1:] == (
        [warning.replace("keys[0].file", "login")] if is_open else []
    )


def test_the_mode_of_a_credential_of_systemd_is_its_own(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "ops.key").write_text(GOOD)
    (credentials / "ops.key").chmod(0o644)
    secrets = SecretReader(
        settings_file=tmp_path / "registry.yml",
        environ={"CREDENTIALS_DIRECTORY": str(credentials)},
    )

    secrets.keys([key("ops", file="ops.key")])

    assert list(secrets.exposed()) == []
