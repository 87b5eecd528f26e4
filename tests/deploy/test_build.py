"""What is in the package."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from deploy.deb.environment import merge
from deploy.deb.package import debian_version
from deploy.deb.wheels import BuildError, pinned
from tests.support.e2e.packages import VERSION, Packages, machine_architecture

TOP = Path(__file__).parents[2]
MODULES = "/opt/rollcall/environment/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("version", "debian"),
    [
        ("0.1.0", "0.1.0"),
        ("1.2.0rc1", "1.2.0~rc1"),
        ("1.2.0a3", "1.2.0~a3"),
        ("1.2.0.dev4", "1.2.0~dev4"),
        ("1.2.0.post1", "1.2.0.post1"),
    ],
)
def test_a_pre_release_comes_before_its_release(version: str, debian: str) -> None:
    assert debian_version(version) == debian


def test_files_of_two_pythons_come_together(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"x/one.py": "1", "x/m.cpython-311.so": "a", "x.dist-info/WHEEL": "a"})
    _write(tmp_path / "b", {"x/one.py": "1", "x/m.cpython-312.so": "b", "x.dist-info/WHEEL": "b"})
    for part in ("a", "b"):
        merge(tmp_path / part, tmp_path / "all")
    files = {each.name for each in (tmp_path / "all").rglob("*") if each.is_file()}
    assert files == {"one.py", "m.cpython-311.so", "m.cpython-312.so"}


def test_files_that_differ_between_pythons_are_refused(tmp_path: Path) -> None:
    _write(tmp_path / "a", {"x/one.py": "1"})
    _write(tmp_path / "b", {"x/one.py": "2"})
    merge(tmp_path / "a", tmp_path / "all")
    with pytest.raises(BuildError, match=r"x/one\.py: not the same for each Python"):
        merge(tmp_path / "b", tmp_path / "all")


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.long
@pytest.mark.real("dpkg-deb", "lintian")
def test_lintian_finds_no_error(packages: Packages) -> None:
    done = subprocess.run(
        ["lintian", "--fail-on", "error", packages.present],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "E: " not in done.stdout


@pytest.mark.real("dpkg-deb")
def test_the_version_is_that_of_the_project(packages: Packages) -> None:
    assert _field(packages.present, "Version") == debian_version(VERSION)
    assert _field(packages.present, "Architecture") == machine_architecture()


@pytest.mark.real("dpkg-deb")
def test_it_holds_each_locked_dependency_for_each_python(packages: Packages) -> None:
    names = _names(packages.present)
    for pin in pinned(TOP / "requirements-nats.txt"):
        name, _, version = pin.partition("==")
        folder = f"{MODULES}/{name.replace('-', '_')}-{version}.dist-info/METADATA"
        assert folder in names, pin
    compiled = [re.search(r"\.cpython-(3\d+)-[a-z0-9_]+-linux-gnu\.so$", each) for each in names]
    of_each = [found[1] for found in compiled if found]
    assert set(of_each) == {"311", "312", "313"}
    assert of_each.count("311") == of_each.count("312") == of_each.count("313") > 10
    assert f"{MODULES}/agent/swagger.yml" in names


@pytest.mark.real("dpkg-deb")
def test_it_holds_no_key_nothing_compiled_by_python_and_commands_for_its_place(
    packages: Packages, tmp_path: Path
) -> None:
    names = _names(packages.present)
    assert not [each for each in names if each.endswith((".key", ".secret", ".pyc"))]
    subprocess.run(["dpkg-deb", "--extract", packages.present, tmp_path], check=True)
    for name in ("agent", "registry"):
        script = (tmp_path / f"opt/rollcall/environment/bin/rollcall-{name}").read_text()
        assert script.startswith("#!/opt/rollcall/venv/bin/python\n")
        link = tmp_path / f"usr/bin/rollcall-{name}"
        assert str(link.readlink()) == f"/opt/rollcall/venv/bin/rollcall-{name}"


@pytest.mark.real("dpkg-deb")
def test_both_settings_are_conffiles_in_which_each_setting_is_commented(
    packages: Packages, tmp_path: Path
) -> None:
    info = _output(["dpkg-deb", "--info", str(packages.present), "conffiles"])
    assert info.split() == ["/etc/rollcall/agent.yml", "/etc/rollcall/registry.yml"]
    subprocess.run(["dpkg-deb", "--extract", packages.present, tmp_path], check=True)
    for name in ("agent", "registry"):
        shipped = yaml.safe_load((TOP / f"config/{name}.yml").read_text())
        text = (tmp_path / f"etc/rollcall/{name}.yml").read_text()
        packaged = yaml.safe_load(text)
        assert set(shipped) <= set(packaged)
        assert packaged["keys"][0] == {"name": "ops", "file": "ops.key", "allow": ["read", "write"]}
        assert packaged["store"] == f"sqlite:///var/lib/rollcall-{name}/{name}.db"


@pytest.mark.long
@pytest.mark.real("dpkg-deb")
def test_the_package_of_another_architecture_has_the_same_libraries_for_that_one(
    packages: Packages, foreign_package: Path, tmp_path: Path
) -> None:
    architecture = _field(foreign_package, "Architecture")
    assert {architecture, machine_architecture()} == {"amd64", "arm64"}
    machines = {"amd64": 62, "arm64": 183}  # e_machine of ELF

    here, there = _compiled(packages.present), _compiled(foreign_package)
    assert here == there
    subprocess.run(["dpkg-deb", "--extract", foreign_package, tmp_path], check=True)
    files = [each for each in tmp_path.rglob("*.so*") if each.is_file()]
    heads = {each.name: each.read_bytes()[:20] for each in files}
    assert len(heads) > 30
    assert {head[18] for head in heads.values()} == {machines[architecture]}


def _compiled(package: Path) -> set[str]:
    """Return the compiled modules in a package, without the names of architectures."""
    names = {each for each in _names(package) if each.endswith(".so")}
    return {re.sub(r"(cpython-3\d+)-.*\.so$", r"\1.so", each) for each in names}


def _names(package: Path) -> set[str]:
    """Return the paths of all files in a package."""
    lines = _output(["dpkg-deb", "--contents", str(package)]).splitlines()
    return {line.split(maxsplit=5)[5].partition(" -> ")[0].removeprefix(".") for line in lines}


def _field(package: Path, name: str) -> str:
    return _output(["dpkg-deb", "--field", str(package), name]).strip()


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
