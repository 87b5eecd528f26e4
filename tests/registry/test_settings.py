"""From a settings file to keys and collaborators."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.load import ConfigError
from httpd.auth import fingerprint
from registry.main import main
from registry.settings import RegistryConfiguration
from tests.support.certificates import Authority

INLINE = "inline-key-0123456789"
IN_FILE = "key-in-a-file-0123456789"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a settings file with a key written into it, and one in a file."""
    (tmp_path / "ops.key").write_text(IN_FILE)
    settings = {
        "keys": [
            {"name": "inline", "value": INLINE, "allow": ["read"]},
            {"name": "ops", "file": "ops.key", "allow": ["register"], "nodes": ["web-*"]},
        ],
        "store": f"sqlite:///{tmp_path}/registry.db",
    }
    path = tmp_path / "registry.yml"
    path.write_text(yaml.safe_dump(settings))
    return path


def reachable(start: object) -> Iterator[object]:
    """Return all that an object leads to, but not through classes and modules."""
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        found = waiting.pop()
        if id(found) not in seen and not isinstance(found, type) and not callable(found):
            seen[id(found)] = found
            waiting += gc.get_referents(found)
    return iter(seen.values())


def test_a_key_is_known_by_its_fingerprint_alone_once_it_was_read(file: Path) -> None:
    configuration = RegistryConfiguration(file, {})
    assert INLINE in reachable(configuration)

    known = configuration.callers

    assert [key for key, _ in known] == [fingerprint(INLINE), fingerprint(IN_FILE)]
    left = [text for text in reachable(configuration) if isinstance(text, str)]
    assert configuration.file.name == "registry.yml"
    assert not any(INLINE in text or IN_FILE in text for text in left)
    assert configuration.callers == known  # although the settings hold none any more


def test_what_a_key_may_do_is_as_the_settings_say(file: Path) -> None:
    (_, inline), (_, ops) = RegistryConfiguration(file, {}).callers

    assert (inline.name, inline.allow, inline.nodes) == ("inline", frozenset({"read"}), ("*",))
    assert (ops.name, ops.allow, ops.nodes) == ("ops", frozenset({"register"}), ("web-*",))


def test_what_is_sound_in_a_faulty_section_is_checked_too(tmp_path: Path) -> None:
    settings = {
        "keys": [
            {"name": "ops", "value": "short", "allow": ["reed"]},
            {"name": "scraper", "file": "none.key", "allow": ["read"], "unknown": 1},
            {"name": 7, "value": "a", "file": "b", "allow": ["read"]},
            "none",
            {"name": "b", "value": INLINE, "allow": ["read"], "unknown": 1},
            {"name": "c", "value": INLINE, "allow": ["read"]},
        ],
        "node_secret": [{"file": 1}, {"file": "none.secret"}],
        "tls": {"certificate": "none.crt", "key": "none.key", "client": "none.ca"},
        "store": "nats://127.0.0.1/BUCKET",
        "nats": {"replicas": "three", "password": {"value": "short"}, "user": "registry"},
    }
    path = tmp_path / "registry.yml"
    path.write_text(yaml.safe_dump(settings))

    with pytest.raises(ConfigError) as rejection:
        RegistryConfiguration(path, {})

    reported = [mistake.removeprefix(f"{path}: ") for mistake in rejection.value.mistakes]
    assert sorted(mistake.split(": ")[0] for mistake in reported) == [
        "keys[0].allow[0]",
        "keys[0].value",
        "keys[1].file",
        "keys[1].unknown",
        "keys[2]",
        "keys[2].name",
        "keys[3]",
        "keys[4].unknown",
        "keys[5]",
        "nats.password.value",
        "nats.replicas",
        "node_secret[0].file",
        "node_secret[1].file",
        "tls.certificate",
        "tls.client",
        "tls.key",
    ]


def test_the_check_prints_every_mistake_and_what_would_stop_the_start_here(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nats = {
        "tls": {"ca": "none.ca", "certificate": "none.crt", "key": "none.key"},
        "nkey": {"value": "short"},
        "system": {"credentials": "none.creds"},
    }
    settings = {
        "keys": [
            {"name": "ops", "value": INLINE, "allow": ["read"]},
            {"name": "short", "value": "short", "allow": ["read"]},
            {"name": "scraper", "value": INLINE, "allow": ["read"]},
        ],
        "nats": nats,
        "node_secret": {"file": "none.secret"},
        "store": f"sqlite:///{file.parent}/none/registry.db",
        "tls": {"certificate": "none.crt", "key": "none.key"},
    }
    of_files = [
        "keys[1].value",
        "keys[2]",
        "nats.nkey.value",
        "nats.system.credentials",
        "nats.tls.ca",
        "nats.tls.certificate",
        "nats.tls.key",
        "node_secret.file",
        "store",
        "tls.certificate",
        "tls.key",
    ]
    unknown = {"listn": "127.0.0.1:1"}
    of_form = {"keys": "ops.key", "store": 5}
    for faulty, reported in [
        (settings, of_files),
        (settings | unknown, sorted([*of_files, "listn"])),
        (settings | of_form, [each for each in of_files if "keys[" not in each] + ["keys"]),
        (settings | {"store": "postgres://x"}, of_files),
    ]:
        file.write_text(yaml.safe_dump(faulty))

        assert main(["--config", str(file), "--check"]) == 2

        assert settings_in(capsys.readouterr().err, file) == sorted(reported)


def settings_in(errors: str, file: Path) -> list[str]:
    """Return the settings of the mistakes, which begin with the file and a line of it."""
    form = re.compile(rf"rollcall-registry: {re.escape(str(file))}:\d+: (\S+): ")
    return sorted(form.sub(r"\1 ", line).split()[0] for line in errors.splitlines())


def test_a_store_without_a_directory_is_reported_and_is_no_mistake(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = file.parent / "none"
    settings = yaml.safe_load(file.read_text()) | {"store": f"sqlite:///{folder}/registry.db"}
    file.write_text(yaml.safe_dump(settings))

    assert main(["--config", str(file), "--check"]) == 0

    reported = capsys.readouterr().err
    assert reported.startswith(f"rollcall-registry: {file}: store: the directory {folder} does not")


def test_all_mistakes_in_callbacks_are_reported(file: Path) -> None:
    (file.parent / "short.key").write_text("short")
    (file.parent / "some.crt").write_text("no certificate")
    callbacks = [
        {"url": "https://a/x", "key_file": "none.key", "ca": "none.crt"},
        {"url": "https://b/x", "key_file": "short.key", "ca": "some.crt", "secret": 1},
        {"url": "ftp://c/x", "key_file": "ops.key"},
        {"url": "http://user:secret@d/x", "key_file": "ops.key"},
        {"url": "http://e:0/x", "key_file": "ops.key", "ca": "some.crt"},
        {"url": "http://f/x", "labels": [""]},
        {"key_file": "ops.key"},
        {"url": "http://[g/x", "key_file": "ops.key"},
    ]
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"callbacks": callbacks}))

    with pytest.raises(ConfigError) as rejection:
        RegistryConfiguration(file, {})

    reported = sorted(mistake.removeprefix(f"{file}: ") for mistake in rejection.value.mistakes)
    starts = [
        f"callbacks[0].ca: cannot be used: {file.parent}/none.crt: No such file",
        f"callbacks[0].key_file: {file.parent}/none.key cannot be read: No such file",
        f"callbacks[1].ca: cannot be used: {file.parent}/some.crt: ",
        "callbacks[1].key_file: has fewer than 16 characters",
        "callbacks[1].secret: unknown setting",
        "callbacks[2]: `url` is no URL of a receiver; write http://HOST:PORT/PATH",
        "callbacks[3]: `url` must not hold a user",
        "callbacks[4].ca: cannot be used: ",
        "callbacks[4]: `ca` needs https; write https://HOST:PORT/PATH as `url`, or leave `ca` out",
        "callbacks[4]: `url` is no URL of a receiver",
        "callbacks[5].labels[0]: ",
        "callbacks[5]: Object missing required field `key_file`",
        "callbacks[6]: Object missing required field `url`",
        "callbacks[7]: `url` is no URL: ",
    ]
    assert len(reported) == len(starts), reported
    assert [
        text for text, start in zip(reported, starts, strict=True) if not text.startswith(start)
    ] == []
    assert not any("secret@" in text for text in reported)


def test_two_callbacks_have_urls_that_differ_in_more_than_the_query(file: Path) -> None:
    urls = ["http://a/x?1", "http://a/y", "http://a/x?2"]
    callbacks = [{"url": url, "key_file": "ops.key"} for url in urls]
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"callbacks": callbacks}))

    with pytest.raises(ConfigError, match="`callbacks`: http://a/x is set twice"):
        RegistryConfiguration(file, {})


def test_a_callback_has_its_key_its_labels_and_its_ca(file: Path) -> None:
    authority = Authority(file.parent / "ca")
    callbacks = [
        {"url": "https://a/x?t=1", "key_file": "ops.key", "ca": "ca/ca.crt", "labels": ["b", "a"]},
        {"url": "http://b/x", "key_file": "ops.key"},
    ]
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"callbacks": callbacks}))
    configuration = RegistryConfiguration(file, {})

    configuration.validate()
    first, second = configuration.callbacks()

    assert (first.url, first.name, first.key) == (
        "https://a/x?t=1",
        "https://a/x",
        IN_FILE.encode(),
    )
    assert first.filters.labels == ("b", "a")
    assert first.ca == authority.ca
    assert (second.filters.labels, second.ca) == ((), None)
    assert IN_FILE not in repr(first)


@pytest.mark.parametrize(("length", "status"), [(15, 2), (16, 0)])
def test_a_key_has_sixteen_characters_at_least(
    tmp_path: Path, length: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    key: dict[str, Any] = {"name": "ops", "value": "0123456789abcdef"[:length], "allow": ["read"]}
    path = tmp_path / "registry.yml"
    path.write_text(yaml.safe_dump({"keys": [key], "store": f"sqlite:///{tmp_path}/r.db"}))

    assert main(["--config", str(path), "--check"]) == status
    assert ("fewer than 16 characters" in capsys.readouterr().err) == (status == 2)


def test_what_nobody_sets_is_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "registry.yml"
    path.write_text("{}")

    settings = RegistryConfiguration(path, {}).settings

    assert settings.listen == "127.0.0.1:7655"
    assert settings.store == "sqlite:///var/lib/rollcall/registry.db"
    assert (settings.nodes.stale_after_seconds, settings.nodes.expire_after_seconds) == (90, 86_400)
    assert (settings.prometheus.default_port, settings.prometheus.targets) == (9100, "any")
    assert not settings.open_metrics
    assert not settings.open_swagger


def test_the_version_and_the_usual_settings_file_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, reported in (
        ("--version", "rollcall-registry 0."),
        ("--help", "/etc/rollcall/registry.yml"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
        assert reported in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "mistake"),
    [
        ({"ca": "none.crt"}, "nats.tls.ca: {folder}/none.crt cannot be read: No such file"),
        (
            {"certificate": "some.crt", "key": "none.key"},
            "nats.tls.key: {folder}/none.key cannot be read: No such file",
        ),
        ({"ca": "some.crt"}, "nats.tls: {folder}/some.crt cannot be used"),
    ],
    ids=str,
)
def test_a_file_for_tls_to_nats_that_cannot_be_used_is_named(
    setting: dict[str, str], mistake: str, file: Path
) -> None:
    settings = yaml.safe_load(file.read_text())
    (file.parent / "some.crt").write_text("no certificate")
    file.write_text(yaml.safe_dump(settings | {"nats": {"tls": setting}}))

    with pytest.raises(ConfigError) as raised:
        RegistryConfiguration(file, {}).validate()

    assert mistake.format(folder=file.parent) in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        ({"shared_listen": "nowhere"}, "`shared_listen`: `nowhere` is no address"),
        (
            {"listen": "127.0.0.1:1", "shared_listen": "127.0.0.1:1"},
            "`shared_listen` must differ from `listen`",
        ),
        ({"store": "sqlite:///r.db"}, "`shared_listen` needs a `store` that several registries"),
    ],
    ids=str,
)
def test_an_address_is_shared_only_by_registries_that_share_a_store(
    settings: dict[str, str], mistake: str, file: Path
) -> None:
    shared = {"shared_listen": "0.0.0.0:7655", "store": "nats://n1/b", **settings}
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | shared))

    with pytest.raises(ConfigError, match=re.escape(mistake)):
        RegistryConfiguration(file, {})
