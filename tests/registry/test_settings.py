"""From a settings file to keys and collaborators."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from httpd.auth import fingerprint
from registry.main import main
from registry.settings import RegistryConfiguration

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
        ]
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


@pytest.mark.parametrize(("length", "status"), [(15, 2), (16, 0)])
def test_a_key_has_sixteen_characters_at_least(
    tmp_path: Path, length: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    key: dict[str, Any] = {"name": "ops", "value": "k" * length, "allow": ["read"]}
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


def test_the_version_and_the_usual_settings_file_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, told in (
        ("--version", "rollcall-registry 0."),
        ("--help", "/etc/rollcall/registry.yml"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([option])
        assert ended.value.code == 0
        assert told in capsys.readouterr().out
