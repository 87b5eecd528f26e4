"""The section `nats` of the settings, and what a store in NATS costs those who have none."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.load import ConfigError
from registry.settings import RegistryConfiguration
from runtime.certificates import expiries, validities_of
from tests.support.certificates import Authority

KEY = "0123456789abcdef"
WITHOUT_NATS = """
import sys
sys.modules["nats"] = None  # as if it were not installed
from registry.main import main
sys.exit(main(["--config", sys.argv[1], "--check"]))
"""
LOADED = """
import sys
from pathlib import Path
from registry import daemon, main
from registry.settings import RegistryConfiguration
for file in sys.argv[1:]:
    RegistryConfiguration(Path(file)).validate()
    print(any(name.partition(".")[0] in ("nats", "nkeys") for name in sys.modules))
"""


def write(folder: Path, **settings: Any) -> Path:
    file = folder / "registry.yml"
    keys = [{"name": "ops", "value": KEY, "allow": ["read"]}]
    file.write_text(yaml.safe_dump({"keys": keys, "store": "nats://n1/b", **settings}))
    return file


def mistakes(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        RegistryConfiguration(file).validate()
    return [mistake.removeprefix(f"{file}: ") for mistake in raised.value.mistakes]


def test_the_ends_of_the_certificates_for_nats_are_reported(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("registry")
    tls = {"certificate": str(pair.certificate), "key": str(pair.key), "ca": str(authority.ca)}

    with_tls = RegistryConfiguration(write(tmp_path, nats={"tls": tls})).nats_expiries()
    without = RegistryConfiguration(write(tmp_path)).nats_expiries()

    assert with_tls == expiries(
        validities_of(certificate=pair.certificate, authorities=authority.ca)
    )
    assert with_tls.keys() == {pair.certificate, authority.ca}
    assert without == {}


def test_what_is_set_is_what_the_store_gets(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("registry")
    (tmp_path / "nats.password").write_text("password-of-registries\n")
    (tmp_path / "registry.creds").write_text("-----BEGIN NATS USER JWT-----\nx\n")
    nats = {
        "user": "rollcall",
        "password": {"file": "nats.password"},
        "tls": {
            "ca": str(authority.ca),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
        },
        "system": {"credentials": "registry.creds"},
        "replicas": 5,
        "placement_cluster": "east",
        "placement_tags": ["ssd"],
        "monitoring": ["http://n1:8222"],
        "accept_loss": True,
    }
    configuration = RegistryConfiguration(write(tmp_path, nats=nats))
    configuration.validate()

    options = configuration.nats_options()
    assert (options.login.user, options.login.password) == ("rollcall", "password-of-registries")
    assert options.login.tls is not None
    assert options.system is not None
    assert options.system.credentials == "-----BEGIN NATS USER JWT-----\nx\n"
    assert (options.replicas, options.placement_cluster) == (5, "east")
    assert (options.placement_tags, options.monitoring) == (("ssd",), ("http://n1:8222",))
    assert options.accept_loss
    assert str(configuration.store()) == "nats://n1:4222/b"


@pytest.mark.parametrize(
    ("nats", "expected"),
    [
        ({"user": "a"}, "nats: `user` and `password` go together"),
        (
            {"nkey": {"value": "S" * 20}, "credentials": "c"},
            "nats: give one of `user`, `nkey` and `credentials`",
        ),
        ({"tls": {"key": "k"}}, "nats.tls: `certificate` and `key` go together"),
        ({"monitoring": ["n1:8222"]}, "is not a URL such as http://n1:8222"),
        ({"monitoring": ["http://u:secret@n1:8222"]}, "`monitoring`: a URL must not hold a user"),
        ({"replicas": 6}, "nats.replicas"),
        ({"credentials": "gone"}, "nats.credentials"),
        ({"user": "a", "password": {"file": "gone"}}, "nats.password.file"),
        ({"system": {"nkey": {"file": "gone"}}}, "nats.system.nkey.file"),
        ({"tls": {"ca": "gone"}}, "nats.tls"),
        ({"unknown": 1}, "nats"),
    ],
)
def test_a_mistake_is_reported_with_its_path(
    nats: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    (text,) = mistakes(write(tmp_path, nats=nats))

    assert expected in text


@pytest.mark.slow
def test_a_missing_library_is_reported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NATS, write(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "store: nats is not installed" in done.stderr
    assert "install rollcalld[nats]" in done.stderr


@pytest.mark.slow
def test_only_a_store_in_nats_loads_its_library(tmp_path: Path) -> None:
    files = []
    for name, store in (("sqlite", "sqlite:////tmp/r.db"), ("nats", "nats://n/b")):
        (tmp_path / name).mkdir()
        files.append(write(tmp_path / name, store=store))

    done = subprocess.run(
        [sys.executable, "-c", LOADED, *files], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "True"]
